"""Advantages against a plain loop, and what each kind of end does to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mjxgym.ppo.gae import gae

DISCOUNT, LAMBDA = 0.97, 0.9


def random_batch(time=9, envs=5, seed=0):
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, time, envs)).astype(np.float32)
    ends = rng.uniform(size=(time, envs))
    terminated, truncated = ends < 0.15, ends > 0.85
    valid = ~(terminated & (rng.uniform(size=(time, envs)) < 0.3))
    return reward, value, next_value, terminated, truncated, valid


def loop(reward, value, next_value, terminated, truncated, valid, discount, lam):
    advantage = np.zeros_like(reward, dtype=np.float64)
    for b in range(reward.shape[1]):
        after = 0.0
        for t in reversed(range(reward.shape[0])):
            if not valid[t, b]:
                after = 0.0
            elif terminated[t, b]:
                after = reward[t, b] - value[t, b]
            elif truncated[t, b]:
                after = reward[t, b] + discount * next_value[t, b] - value[t, b]
            else:
                after = reward[t, b] + discount * next_value[t, b] - value[t, b] + discount * lam * after
            advantage[t, b] = after
    return advantage


@pytest.mark.parametrize("seed", range(3))
def test_gae_is_the_plain_loop(seed):
    batch = random_batch(seed=seed)
    np.testing.assert_allclose(gae(*batch, DISCOUNT, LAMBDA), loop(*batch, DISCOUNT, LAMBDA), rtol=1e-5, atol=1e-5)


def test_lambda_0_is_one_step_temporal_difference():
    reward, value, next_value, terminated, truncated, _ = random_batch()
    advantage = gae(reward, value, next_value, terminated, truncated, np.ones_like(terminated), DISCOUNT, 0.0)
    expected = reward + DISCOUNT * np.where(terminated, 0.0, next_value) - value
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-6)


def test_lambda_1_is_the_discounted_sum_minus_the_value():
    reward, value, next_value, _, _, _ = random_batch()
    next_value = np.concatenate([value[1:], next_value[-1:]])  # no end: each step leads to the next one
    no = np.zeros_like(reward, dtype=bool)
    total = next_value[-1].astype(np.float64)
    for t in reversed(range(len(reward))):
        total = reward[t] + DISCOUNT * total
    np.testing.assert_allclose(
        gae(reward, value, next_value, no, no, ~no, DISCOUNT, 1.0)[0], total - value[0], rtol=1e-4
    )


def test_truncation_bootstraps_termination_does_not():
    one, no, yes = jnp.ones((1, 1)), jnp.zeros((1, 1), bool), jnp.ones((1, 1), bool)
    after_truncation = gae(one, 2.0 * one, 10.0 * one, no, yes, yes, 0.5, 0.9)
    after_termination = gae(one, 2.0 * one, 10.0 * one, yes, no, yes, 0.5, 0.9)
    assert after_truncation[0, 0] == 1.0 + 0.5 * 10.0 - 2.0
    assert after_termination[0, 0] == 1.0 - 2.0


def test_an_invalid_step_may_hold_anything():
    reward, value, next_value, terminated, truncated, _ = random_batch()
    valid = np.ones_like(terminated)
    valid[4, 2] = False
    poisoned = reward.copy()
    poisoned[4, 2] = np.nan
    clean = gae(reward, value, next_value, terminated, truncated, valid, DISCOUNT, LAMBDA)
    poison = gae(poisoned, value, next_value, terminated, truncated, valid, DISCOUNT, LAMBDA)
    np.testing.assert_array_equal(clean, poison)
    assert poison[4, 2] == 0.0


def test_a_later_episode_does_not_reach_an_earlier_one():
    reward, value, next_value, terminated, truncated, valid = map(jnp.asarray, random_batch())
    truncated = truncated.at[3].set(True) & ~terminated
    terminated = terminated.at[3].set(False)
    truncated = truncated.at[3].set(True)

    def early(reward):
        return jnp.sum(gae(reward, value, next_value, terminated, truncated, valid, DISCOUNT, LAMBDA)[:4])

    slope = jax.grad(early)(reward)
    assert jnp.all(slope[4:] == 0.0)
    assert jnp.any(slope[3] != 0.0)
