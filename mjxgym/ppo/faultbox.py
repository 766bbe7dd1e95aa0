"""What led to a broken world: the last T steps before the first quarantine of each cause, kept while training runs.

The steps are whatever a `Snapshot` keeps of them; this module knows neither physics nor tasks. Axes: T time, B envs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.env import State

# (states before a step, action, states after it and before any reset), all [B, ...] -> what to keep, [B, ...]
Snapshot = Callable[[State, Array, State], Any]


class Steps(NamedTuple):
    """A rollout as the box sees it."""

    kept: Any  # snapshots [T, B, ...]; () where none are taken
    causes: Any  # NamedTuple of [T, B] bool: quarantined, by cause


class Case(NamedTuple):
    """One world's way into a fault."""

    steps: Any  # [T, ...] snapshots; the last one broke
    length: Array  # [] int32, how many of them, from the end, are known; 0: this cause has not been seen
    world: Array  # [] int32, row of B
    iteration: Array  # [] int32, iterations before the one in which it broke


class Box(NamedTuple):
    """Carried from iteration to iteration of a call."""

    before: Any  # [T, B, ...] snapshots of the last rollout
    known: Array  # [] int32, how many of its steps are real: 0 or T
    cases: dict[str, Case]  # the first of each cause


def empty(steps: Steps) -> Box:
    """Nothing seen; `steps` may be shapes."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), steps.kept)
    nought = jnp.zeros((), jnp.int32)
    one = jax.tree.map(lambda leaf: leaf[:, 0], zeros)
    return Box(zeros, nought, {name: Case(one, nought, nought, nought) for name in steps.causes._fields})


def look(box: Box, steps: Steps, iteration: Array) -> Box:
    """The box after a rollout."""
    flags: dict[str, Array] = steps.causes._asdict()
    num_steps, num_envs = next(iter(flags.values())).shape

    def first(name: str) -> Case:
        time, world = jnp.unravel_index(jnp.argmax(flags[name]), (num_steps, num_envs))

        def window(before: Array, now: Array) -> Array:
            both = jnp.concatenate([before[:, world], now[:, world]])  # [2T, ...]
            return jax.lax.dynamic_slice_in_dim(both, time + 1, num_steps)

        return Case(
            steps=jax.tree.map(window, box.before, steps.kept),
            length=jnp.minimum(num_steps, time + 1 + box.known).astype(jnp.int32),
            world=world.astype(jnp.int32),
            iteration=iteration,
        )

    def case(name: str) -> Case:
        known = box.cases[name]
        return jax.lax.cond((known.length == 0) & jnp.any(flags[name]), lambda: first(name), lambda: known)

    return Box(steps.kept, jnp.full((), num_steps, jnp.int32), {name: case(name) for name in flags})
