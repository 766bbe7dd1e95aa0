"""What every task keeps, whatever it is about. Engine c; axes: B envs, T control steps."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from mjxgym import envs
from mjxgym.env import State, reset_done, vectorise

NAMES = envs.task_names()
B, T = 8, 120
every_task = pytest.mark.parametrize("name", NAMES)


@functools.cache
def load(name: str) -> Any:
    module = envs.task(name)
    return module.make(module.Config(), engine="c")


@functools.cache
def compiled(name: str) -> tuple[Any, Any]:
    """(reset, step) of B worlds, jitted."""
    vec = vectorise(load(name))
    return jax.jit(vec.reset), jax.jit(vec.step)


@functools.cache
def single(name: str) -> tuple[Any, Any]:
    """(reset, step) of one world, jitted."""
    return jax.jit(load(name).reset), jax.jit(load(name).step)


def starts(name: str, seed: int = 0) -> State:
    return compiled(name)[0](jax.random.split(jax.random.key(seed), B))


def actions(name: str, seed: int = 1) -> Array:
    """[T, B, action_size], some beyond [-1, 1]."""
    return 1.2 * jax.random.uniform(jax.random.key(seed), (T, B, load(name).action_size), minval=-1.0, maxval=1.0)


@functools.cache
def episode(name: str) -> State:
    """[T, B, ...] states under random actions, with `reset_done` between steps (the states are before it)."""
    step, renew, now, fresh, states = compiled(name)[1], jax.jit(reset_done), starts(name), starts(name, seed=2), []
    for action in actions(name):
        after = step(now, action)
        now = renew(after, fresh)
        states.append(after)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def numbers(tree: Any) -> list[np.ndarray]:
    """The leaves as numpy arrays, keys as their words."""
    return [
        np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in jax.tree.leaves(tree)
    ]


def assert_same(left: Any, right: Any) -> None:
    """Equal to the bit."""
    for one, other in zip(numbers(left), numbers(right), strict=True):
        np.testing.assert_array_equal(one, other)


def seen(state: State) -> tuple[Any, ...]:
    """What a learner sees of a state."""
    return state.obs, state.reward, state.terminated, state.truncated, state.step_count, state.metrics


def placed(name: str, row: int, qpos: Any = None, qvel: Any = None) -> State:
    """Starts of which world `row` has been put into another state."""
    env, states = load(name), starts(name)
    new_qpos = states.data.qpos if qpos is None else states.data.qpos.at[row].set(qpos)
    new_qvel = states.data.qvel if qvel is None else states.data.qvel.at[row].set(qvel)
    return states.replace(data=jax.vmap(env.physics.place)(new_qpos, new_qvel))


@every_task
def test_step_returns_what_reset_returns(name):
    env = load(name)
    first = jax.eval_shape(env.reset, jax.random.key(0))
    after = jax.eval_shape(env.step, first, jnp.zeros(env.action_size))
    assert jax.tree.structure(first) == jax.tree.structure(after)
    assert jax.tree.leaves(first) == jax.tree.leaves(after)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(after))


@every_task
def test_sizes_and_names_agree(name):
    env = load(name)
    state = jax.eval_shape(env.reset, jax.random.key(0))
    assert state.obs.shape == (env.obs_size,)
    assert state.obs.dtype == jnp.float32
    assert sum(size for _, size in env.obs_names) == env.obs_size
    assert type(env.reward_weights) is type(state.metrics)
    assert env.control_dt == pytest.approx(0.0166)
    assert env.episode_length == env.config.episode_length


@every_task
def test_same_key_same_trajectory_other_key_another(name):
    step = compiled(name)[1]
    same, again, other = starts(name), starts(name), starts(name, seed=3)
    assert_same(same, again)
    assert np.all(np.any(np.asarray(same.obs != other.obs), axis=1))
    for action in actions(name)[:5]:
        same, again = step(same, action), step(again, action)
        assert_same(same, again)
    assert len(np.unique(np.asarray(same.obs[:, 0]))) == B  # no two of the batch start alike


@every_task
def test_jit_equals_plain(name):
    env, action = load(name), actions(name)[0, 0]
    reset, step = single(name)
    start = env.reset(jax.random.key(4))
    plain, jitted = (start, env.step(start, action)), (reset(jax.random.key(4)), step(start, action))
    for left, right in zip(numbers([*map(seen, plain)]), numbers([*map(seen, jitted)]), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


@every_task
def test_a_row_of_vmap_is_the_single_env(name):
    (reset, step), action = single(name), actions(name)[0]
    batch = compiled(name)[1](starts(name), action)
    alone = step(reset(jax.random.split(jax.random.key(0), B)[5]), action[5])
    for left, right in zip(numbers(seen(batch)), numbers(seen(alone)), strict=True):
        np.testing.assert_allclose(left[5], right, rtol=1e-5, atol=1e-5)


@every_task
def test_random_actions_stay_finite_and_flags_apart(name):
    states = episode(name)
    assert all(np.all(np.isfinite(value)) for value in numbers(seen(states)))
    assert not np.any(states.terminated & states.truncated)
    assert not any(np.any(bit) for bit in numbers(states.faults))


@every_task
def test_reward_is_weights_times_metrics(name):
    states, weights = episode(name), load(name).reward_weights
    by_hand = sum(weight * np.asarray(term) for weight, term in zip(weights, states.metrics, strict=True))
    np.testing.assert_allclose(states.reward, by_hand, rtol=1e-5, atol=1e-6)


@every_task
def test_no_element_of_the_observation_is_constant(name):
    obs = np.asarray(episode(name).obs).reshape(-1, load(name).obs_size)
    labels = [f"{part}[{i}]" for part, size in load(name).obs_names for i in range(size)]
    assert [label for label, spread in zip(labels, np.ptp(obs, axis=0), strict=True) if spread < 1e-4] == []


@every_task
def test_nothing_of_an_episode_survives_its_end(name):
    old, fresh = jax.tree.map(lambda leaf: leaf[10], episode(name)), starts(name, seed=2)
    ended = old.replace(terminated=jnp.arange(B) < 3, truncated=jnp.zeros(B, bool))
    after = reset_done(ended, fresh)
    for new, was, start in zip(numbers(after), numbers(ended), numbers(fresh), strict=True):
        np.testing.assert_array_equal(new[:3], start[:3])
        np.testing.assert_array_equal(new[3:], was[3:])
    assert np.all(np.asarray(after.step_count[:3]) == 0)
    assert not np.any(after.done)
    # And it goes on exactly as the fresh start would have.
    step, action = compiled(name)[1], actions(name)[11]
    went, goes = step(after, action), step(fresh, action)
    for new, start in zip(numbers(went), numbers(goes), strict=True):
        np.testing.assert_array_equal(new[:3], start[:3])


@every_task
def test_a_key_is_used_once(name):
    state = load(name).reset(jax.random.key(0))
    assert not np.array_equal(jax.random.key_data(state.key), jax.random.key_data(jax.random.key(0)))


@every_task
def test_step_compiles_once(name):
    reset, step = single(name)
    state = reset(jax.random.key(0))
    for action in actions(name)[:3, 0]:
        state = step(state, action)
    assert step._cache_size() == 1


@every_task
def test_the_env_passes_through_jit_as_an_argument(name):
    start, action = single(name)[0](jax.random.key(0)), actions(name)[0, 0]
    passed = jax.jit(lambda env, state, action: env.step(state, action))(load(name), start, action)
    np.testing.assert_allclose(passed.obs, single(name)[1](start, action).obs, rtol=1e-5, atol=1e-5)


@every_task
def test_truncation_comes_at_the_limit(name):
    step, limit = compiled(name)[1], load(name).episode_length
    assert np.all(step(starts(name), actions(name)[0]).step_count == 1)
    state = starts(name).replace(step_count=jnp.full(B, limit - 3, jnp.int32))
    for count in (limit - 2, limit - 1, limit):
        state = step(state, jnp.zeros((B, load(name).action_size)))
        assert not np.any(state.terminated)
        np.testing.assert_array_equal(state.step_count, count)
        np.testing.assert_array_equal(state.truncated, count == limit)


@every_task
def test_actions_beyond_one_act_as_one(name):
    step, size = compiled(name)[1], load(name).action_size
    assert_same(step(starts(name), jnp.full((B, size), 7.0)), step(starts(name), jnp.ones((B, size))))


@every_task
@pytest.mark.parametrize("cause", ["state", "diverged"])
def test_a_poisoned_world_is_quarantined_and_its_neighbours_untouched(name, cause):
    row, others = 3, np.arange(B) != 3
    poison = {"qpos": jnp.nan} if cause == "state" else {"qvel": 1e5}
    step, action = compiled(name)[1], actions(name)[0]
    poisoned, healthy = step(placed(name, row, **poison), action), step(placed(name, row), action)
    assert poisoned.terminated[row]
    assert not poisoned.truncated[row]
    assert not poisoned.valid[row]
    assert poisoned.reward[row] == 0.0
    assert not any(np.any(term[row]) for term in poisoned.metrics)
    assert np.all(np.isfinite(poisoned.obs))
    np.testing.assert_array_equal(poisoned.obs[row], starts(name).obs[row])
    causes = {key: bool(value[row]) for key, value in poisoned.faults.nonfinite._asdict().items()}
    assert causes == {key: key == cause for key in causes}
    for left, right in zip(numbers(poisoned), numbers(healthy), strict=True):
        np.testing.assert_array_equal(left[others], right[others])
    # The next episode of that world is healthy.
    after = step(reset_done(poisoned, starts(name, seed=2)), action)
    assert np.all(after.valid)
    assert np.all(np.isfinite(after.obs))
