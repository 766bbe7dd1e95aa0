"""The two rules of every rollout, and a state's flags, on states made by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from mjxgym.env import Faults, Nonfinite, State, no_faults, quarantine, reset_done, select


class Terms(NamedTuple):
    run: Array
    fall: Array


class Obs(NamedTuple):
    policy: Array
    critic: Array


def flag(value: bool) -> Array:
    return jnp.asarray(value)


def state(seed: int = 0, causes: tuple[str, ...] = (), **changes: Any) -> State:
    keys = jax.random.split(jax.random.key(seed), 4)
    made = State(
        data=jax.random.normal(keys[0], (3,)),
        obs=Obs(jax.random.normal(keys[1], (2,)), jnp.full(1, 10.0 + seed)),
        reward=jnp.asarray(1.0 + seed),
        terminated=flag(False),
        truncated=flag(False),
        step_count=jnp.asarray(5 + seed, jnp.int32),
        key=keys[2],
        memory={"last_action": jax.random.normal(keys[3], (2,))},
        metrics=Terms(jnp.asarray(2.0), jnp.asarray(-1.0)),
        faults=Faults(Nonfinite(*(flag(name in causes) for name in Nonfinite._fields)), overflow=()),
    )
    return made.replace(**changes)


def batch(states: list[State]) -> State:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def row(states: State, index: int) -> State:
    return jax.tree.map(lambda leaf: leaf[index], states)


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("terminated", "truncated"), [(False, False), (True, False), (False, True)])
def test_done_is_either_end(terminated: bool, truncated: bool):
    ended = state(terminated=flag(terminated), truncated=flag(truncated))
    assert bool(ended.done) == (terminated or truncated)


@pytest.mark.parametrize("cause", Nonfinite._fields)
def test_valid_is_no_cause_at_all_row_by_row(cause: str):
    assert state().valid
    assert state(faults=no_faults()).valid
    assert not state(causes=(cause,)).valid
    rows = batch([state(), state(causes=(cause,)), state(causes=Nonfinite._fields)])
    np.testing.assert_array_equal(rows.valid, [True, False, False])


@pytest.mark.parametrize("end", [{}, {"terminated": flag(True)}, {"truncated": flag(True)}])
def test_a_healthy_step_passes_unchanged(end: dict[str, Array]):
    after = state(1, **end)
    assert_same(quarantine(state(0), after), after)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize(
    ("causes", "bad"),
    [
        (("state",), "reward"),
        (("state",), None),  # an observation may hide it
        (("diverged",), None),
        (("diverged",), "policy"),
        (("state", "diverged"), "critic"),
        ((), "reward"),
        ((), "policy"),
        ((), "critic"),
    ],
)
def test_a_broken_step_is_made_harmless_and_counted(causes: tuple[str, ...], bad: str | None, value: float):
    before, after = state(0), state(1, causes, truncated=flag(True))
    if bad == "reward":
        after = after.replace(reward=jnp.asarray(value), metrics=Terms(jnp.asarray(value), jnp.asarray(-1.0)))
    elif bad:
        part = getattr(after.obs, bad)
        after = after.replace(obs=after.obs._replace(**{bad: part.at[0].set(value)}))
    safe = quarantine(before, after)
    assert_same(safe.obs, before.obs)
    assert safe.reward == 0
    assert safe.metrics == Terms(0.0, 0.0)
    assert safe.terminated
    assert not safe.truncated
    assert not safe.valid
    # `output` is for what the physics does not explain.
    expected = Nonfinite("state" in causes, "diverged" in causes, output=not causes)
    assert tuple(map(bool, safe.faults.nonfinite)) == tuple(expected)
    # The rest is left for `reset_done` to replace.
    assert_same(
        (safe.data, safe.step_count, safe.key, safe.memory), (after.data, after.step_count, after.key, after.memory)
    )


def test_a_neighbour_of_a_broken_world_is_untouched():
    before = batch([state(0), state(1), state(2)])
    after = batch([state(3), state(4, reward=jnp.asarray(np.nan)), state(5)])
    safe = jax.vmap(quarantine)(before, after)
    for index in (0, 2):
        assert_same(row(safe, index), row(after, index))
    np.testing.assert_array_equal(safe.valid, [True, False, True])


def test_reset_done_replaces_the_whole_state_of_ended_envs_by_their_own_starts():
    running = batch([state(0), state(1, terminated=flag(True)), state(2, truncated=flag(True)), state(3)])
    fresh = batch([state(seed) for seed in range(10, 14)])
    after = reset_done(running, fresh)
    for index, source in enumerate((running, fresh, fresh, running)):
        assert_same(row(after, index), row(source, index))
    assert not jnp.any(after.done)


def test_select_takes_rows_of_every_shape():
    mask = jnp.array([True, False])
    new = {"scalar": jnp.arange(2), "matrix": jnp.ones((2, 3, 3)), "none": jnp.zeros((2, 0))}
    old = jax.tree.map(lambda leaf: -leaf - 1, new)
    found = select(mask, new, old)
    assert found["scalar"].tolist() == [0, -2]
    np.testing.assert_array_equal(found["matrix"], np.stack([np.ones((3, 3)), np.full((3, 3), -2.0)]))
    assert found["none"].shape == (2, 0)
