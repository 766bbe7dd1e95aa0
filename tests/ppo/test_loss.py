"""The loss, term by term, against hand arithmetic and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from mjxgym.ppo import FeedForward, PPOConfig, distributions
from mjxgym.ppo.loss import Batch, bounds_loss, masked_mean, policy_loss, ppo_loss, standardise, value_loss
from mjxgym.ppo.schedule import adapt

TIME, ENVS = 4, 6
NET = FeedForward(action_size=2, hidden=(8,), critic_hidden=None, activation="tanh")


def batch(seed=0):
    keys = iter(jax.random.split(jax.random.key(seed), 10))
    obs = jax.random.normal(next(keys), (TIME, ENVS, 3))
    params = NET.init(next(keys), obs[0, 0])
    output = NET.unroll(params, obs, (), jnp.zeros((TIME, ENVS), bool))
    noise = jax.random.normal(next(keys), output.mean.shape)
    action = distributions.sample(output.mean, output.log_std, noise)
    valid = jnp.ones((TIME, ENVS), bool)
    rows = Batch(
        obs=obs, began=~valid, action=action,
        log_prob=distributions.log_prob(output.mean, output.log_std, action),
        advantage=jax.random.normal(next(keys), (TIME, ENVS)), value=output.value,
        target=output.value + jax.random.normal(next(keys), (TIME, ENVS)), valid=valid, carry=(),
    )  # fmt: skip
    return params, rows


def test_at_ratio_1_the_gradient_is_the_vanilla_policy_gradient():
    params, rows = jax.jit(batch)()
    config = PPOConfig(value_coef=0.0, bounds_coef=0.0)
    flat, unflatten = ravel_pytree(params)
    slope = jax.jit(jax.grad(lambda flat: ppo_loss(unflatten(flat), NET, config, rows.obs, rows)[0]))(flat)

    @jax.jit
    def surrogate(flat):
        output = NET.unroll(unflatten(flat), rows.obs, (), rows.began)
        return -jnp.mean(rows.advantage * distributions.log_prob(output.mean, output.log_std, rows.action))

    for seed in range(3):
        direction = jax.random.normal(jax.random.key(seed), flat.shape)
        step = 1e-2  # float32: rounding 1e-7 / step against curvature step^2
        difference = (surrogate(flat + step * direction) - surrogate(flat - step * direction)) / (2 * step)
        np.testing.assert_allclose(slope @ direction, difference, rtol=5e-3, atol=1e-3)


def test_masked_steps_weigh_nothing_whatever_they_hold():
    params, rows = jax.jit(batch)()
    valid = rows.valid.at[1, 2].set(False)

    @jax.jit
    @jax.value_and_grad
    def loss(params, rows):
        return ppo_loss(params, NET, PPOConfig(entropy_coef=0.01), rows.obs, rows)[0]

    rows = rows._replace(valid=valid)
    nan = jnp.where(valid, 0.0, jnp.nan)
    poisoned = rows._replace(advantage=rows.advantage + nan, target=rows.target + nan, log_prob=rows.log_prob + nan)
    clean = loss(params, rows)
    poison = loss(params, poisoned)
    for one, two in zip(jax.tree.leaves(clean), jax.tree.leaves(poison), strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_total_is_the_weighted_sum_of_the_parts():
    params, rows = jax.jit(batch)()
    config = PPOConfig(value_coef=3.0, bounds_coef=0.5, bounds_soft=0.1, entropy_coef=0.25)
    total, (parts, output) = ppo_loss(params, NET, config, rows.obs, rows)
    expected = parts.policy + 0.5 * 3.0 * parts.value + 0.5 * parts.bounds - 0.25 * parts.entropy
    np.testing.assert_allclose(total, expected, rtol=1e-6)
    np.testing.assert_allclose(parts.policy, -jnp.mean(rows.advantage), atol=1e-6)  # ratio 1
    np.testing.assert_allclose(parts.value, jnp.mean((output.value - rows.target) ** 2), rtol=1e-5)
    assert parts.clip_fraction == 0.0


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.1, 2.0, -2.2, -2.0),  # inside
        (1.5, 2.0, -2.4, 0.0),  # good action, moved enough: clipped
        (0.5, 2.0, -1.0, -2.0),  # good action, moved the wrong way: not clipped
        (1.5, -2.0, 3.0, 2.0),  # bad action, moved the wrong way: not clipped
        (0.5, -2.0, 1.6, 0.0),  # bad action, moved enough: clipped
    ],
)
def test_the_ratio_is_clipped_on_the_side_that_gains(ratio, advantage, loss, slope):
    value, gradient = jax.value_and_grad(policy_loss)(jnp.asarray(ratio), jnp.asarray(advantage), 0.2)
    np.testing.assert_allclose([value, gradient], [loss, slope], rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss"),
    [
        (0.1, 0.0, 1.0, 0.9**2),  # inside the clip
        (0.5, 0.0, 1.0, 0.8**2),  # towards the target beyond the clip: the clipped, larger one
        (-0.5, 0.0, 1.0, 1.5**2),  # away from it: the unclipped, larger one
    ],
)
def test_the_value_loss_is_the_larger_of_two(value, old, target, loss):
    np.testing.assert_allclose(value_loss(*map(jnp.asarray, (value, old, target)), 0.2), loss, rtol=1e-6)
    plain = value_loss(*map(jnp.asarray, (value, old, target)), None)
    np.testing.assert_allclose(plain, (value - target) ** 2, rtol=1e-6)


def test_the_bounds_loss_starts_at_the_soft_bound():
    mean = jnp.array([[1.1, -1.1], [1.6, 0.0], [-2.1, 1.3]])
    np.testing.assert_allclose(bounds_loss(mean, 1.1), [0.0, 0.25, 1.0 + 0.04], rtol=1e-5, atol=1e-12)


def test_standardise_uses_only_the_masked_part():
    value, mask = jnp.array([1.0, 2.0, 3.0, jnp.nan]), jnp.array([True, True, True, False])
    expected = np.array([-1.0, 0.0, 1.0]) / np.sqrt(2.0 / 3.0)
    np.testing.assert_allclose(standardise(value, mask), [*expected, 0.0], rtol=1e-6)
    assert masked_mean(value, jnp.zeros(4, bool)) == 0.0


@pytest.mark.parametrize(
    ("kl", "rate", "expected"),
    [
        (0.0161, 3e-4, 2e-4),  # above twice the target
        (0.0159, 3e-4, 3e-4),
        (0.0041, 3e-4, 3e-4),
        (0.0039, 3e-4, 4.5e-4),  # below half of it
        (1.0, 1.2e-6, 1e-6),  # the floor
        (0.0, 9e-3, 1e-2),  # the ceiling
        (np.nan, 3e-4, 3e-4),
    ],
)
def test_the_adaptive_rate_follows_the_rule(kl, rate, expected):
    config = PPOConfig(kl_target=0.008)
    np.testing.assert_allclose(adapt(jnp.asarray(rate), jnp.asarray(kl), config), expected, rtol=1e-6)
    assert adapt(jnp.asarray(rate), jnp.asarray(kl), PPOConfig(schedule="constant")) == np.float32(rate)
