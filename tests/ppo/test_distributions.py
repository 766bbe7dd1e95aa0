"""Densities against numeric integration."""

import jax
import jax.numpy as jnp
import numpy as np

from mjxgym.ppo import distributions

GRID = np.linspace(-12.0, 12.0, 48001)
P = {"mean": 0.3, "log_std": -0.4}
Q = {"mean": -0.5, "log_std": 0.2}


def density(mean, log_std):
    with jax.enable_x64(True):
        shape = (len(GRID), 1)
        log_p = distributions.log_prob(jnp.full(shape, mean), jnp.full(shape, log_std), jnp.asarray(GRID)[:, None])
        return np.asarray(log_p)


def test_the_density_integrates_to_one_with_the_right_moments():
    p = np.exp(density(**P))
    np.testing.assert_allclose(np.trapezoid(p, GRID), 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.trapezoid(p * GRID, GRID), P["mean"], rtol=1e-6)
    np.testing.assert_allclose(np.trapezoid(p * (GRID - P["mean"]) ** 2, GRID), np.exp(2 * P["log_std"]), rtol=1e-6)


def test_entropy_is_the_integral():
    log_p = density(**P)
    expected = np.trapezoid(-np.exp(log_p) * log_p, GRID)
    np.testing.assert_allclose(distributions.entropy(jnp.array([P["log_std"]])), expected, rtol=1e-5)


def test_kl_is_the_integral_in_the_right_direction():
    log_p, log_q = density(**P), density(**Q)
    expected = np.trapezoid(np.exp(log_p) * (log_p - log_q), GRID)
    reverse = np.trapezoid(np.exp(log_q) * (log_q - log_p), GRID)
    one = {name: jnp.array([value]) for name, value in P.items()}
    two = {name: jnp.array([value]) for name, value in Q.items()}
    actual = distributions.kl(one["mean"], one["log_std"], two["mean"], two["log_std"])
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert abs(actual - reverse) > 0.1


def test_kl_of_equal_narrow_policies_is_zero():
    mean, log_std = jnp.array([0.2, 5.0]), jnp.array([-6.0, -3.0])
    assert distributions.kl(mean, log_std, mean, log_std) == 0.0


def test_actions_add_up():
    mean, log_std, action = jnp.array([0.1, -2.0]), jnp.array([0.3, -0.7]), jnp.array([0.0, 1.0])
    parts = [distributions.log_prob(mean[i : i + 1], log_std[i : i + 1], action[i : i + 1]) for i in range(2)]
    np.testing.assert_allclose(distributions.log_prob(mean, log_std, action), sum(parts), rtol=1e-6)


def test_samples_have_the_mean_and_std():
    noise = jax.random.normal(jax.random.key(0), (20000, 1))
    action = distributions.sample(jnp.full((20000, 1), 0.5), jnp.full((20000, 1), np.log(0.2)), noise)
    np.testing.assert_allclose(jnp.mean(action), 0.5, atol=4 * 0.2 / np.sqrt(20000))  # 4 standard errors
    np.testing.assert_allclose(jnp.std(action), 0.2, rtol=4 / np.sqrt(2 * 20000))
