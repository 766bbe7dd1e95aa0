"""Cart-pole against arithmetic."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mjxgym.env import State
from mjxgym.envs import cartpole

FORCE = 400.0  # N at action 1


@functools.cache
def load() -> cartpole.Cartpole:
    return cartpole.make(cartpole.Config(), engine="c")


def stepped(qpos: list[float], qvel: list[float], action: float = 0.0) -> State:
    """One control step from a given state: cart, then pole."""
    env = load()
    start = env.reset(jax.random.key(0)).replace(data=env.physics.place(jnp.array(qpos), jnp.array(qvel)))
    return env.step(start, jnp.array([action]))


def test_reward_by_hand():
    state = stepped([0.3, -0.2], [1.5, -0.7], 0.1)
    _, vel, angle, spin = np.asarray(state.obs, np.float64)
    assert not state.terminated
    assert float(state.reward) == pytest.approx(1 - angle**2 - 0.01 * abs(vel) - 0.005 * abs(spin), abs=1e-6)


def test_observation_is_cart_then_pole_position_and_velocity():
    state = stepped([0.3, -0.2], [1.5, -0.7])
    (cart, pole), (cart_vel, pole_vel) = state.data.qpos, state.data.qvel
    np.testing.assert_array_equal(state.obs, [cart, cart_vel, pole, pole_vel])


def test_observation_is_clipped_but_reward_is_not():
    state = stepped([0.0, 0.0], [8.0, 0.0])
    assert state.obs[1] == 5.0
    assert float(state.metrics.cart_speed) == pytest.approx(float(state.data.qvel[0]))
    assert state.data.qvel[0] > 7


@pytest.mark.parametrize("qpos", [[3.05, 0.0], [-3.05, 0.0], [0.0, 1.6], [0.0, -1.6]])
def test_failure_replaces_the_reward_by_minus_two(qpos):
    state = stepped(qpos, [0.0, 0.0])
    assert state.reward == -2.0
    assert state.terminated
    assert not state.truncated
    assert state.metrics == cartpole.Reward(0.0, 0.0, 0.0, 0.0, 1.0)


def test_failure_at_the_time_limit_is_no_truncation():
    env = load()
    late = env.reset(jax.random.key(0)).replace(step_count=jnp.array(env.episode_length - 1))
    assert env.step(late, jnp.zeros(1)).truncated
    fallen = late.replace(data=env.physics.place(jnp.array([0.0, 1.7]), jnp.zeros(2)))
    state = env.step(fallen, jnp.zeros(1))
    assert state.terminated
    assert not state.truncated


def test_push_follows_newton():
    # Pole upright and still: the cart feels both masses until the pole leans, (M + m) a - m l alpha = F and
    # (I + m l^2) alpha = m l a, for a pole whose angle grows against the push.
    length, inertia = 0.47, (0.06**2 + 1.0) / 12
    coupling = length**2 / (inertia + length**2)
    expected = FORCE * 0.01 / (2.0 - coupling)  # m/s^2 at action 0.01
    state = stepped([0.0, 0.0], [0.0, 0.0], 0.01)
    assert float(state.data.qvel[0]) == pytest.approx(expected * load().control_dt, rel=0.01)


def test_starts_fill_the_published_box():
    obs = np.asarray(jax.vmap(load().reset)(jax.random.split(jax.random.key(1), 500)).obs)
    for column, bound in enumerate([0.1, 0.25, 0.1, 0.25]):
        assert 0.95 * bound < np.max(np.abs(obs[:, column])) <= bound
        assert abs(np.mean(obs[:, column])) < 0.1 * bound
