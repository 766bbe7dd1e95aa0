"""Returns and lengths of whole training episodes, in the task's own units, across iterations. Axes: T, B, K recent.

What is not counted: an episode that ended in quarantine, and a first episode whose staggered clock cut it short. A
first episode that ended by termination is counted, so the learner reports from the start; as the cut ones are missing,
long episodes are under-represented during the first `episode_length` steps, and only then.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from mjxgym.env import State
from mjxgym.tree import Record


class Finished(NamedTuple):
    """Episodes that ended at a step; [B], or [T, B] after a scan."""

    counted: Array  # bool, an episode ended here and belongs in the statistics
    return_: Array  # float32, sum of unscaled rewards so far
    length: Array  # int32, control steps so far


class Tally(Record):
    """Running sums of the episodes under way, and the last K finished ones."""

    return_: Array  # [B] float32
    length: Array  # [B] int32
    whole: Array  # [B] bool, the episode began with its clock at 0
    recent_return: Array  # [K] float32, ring
    recent_length: Array  # [K] int32, ring
    recent_total: Array  # [] int32, episodes ever put in the ring, modulo K once it is full


def tally(whole: Array, recent_episodes: int) -> Tally:
    """Nothing finished yet; `whole` [B] bool."""
    return Tally(
        return_=jnp.zeros(whole.shape, jnp.float32),
        length=jnp.zeros(whole.shape, jnp.int32),
        whole=whole,
        recent_return=jnp.zeros(recent_episodes, jnp.float32),
        recent_length=jnp.zeros(recent_episodes, jnp.int32),
        recent_total=jnp.zeros((), jnp.int32),
    )


def add(before: Tally, after: State) -> tuple[Tally, Finished]:
    """Count one step of all envs; `after` [B, ...] is what the step led to, not yet reset."""
    return_ = before.return_ + after.reward
    length = before.length + 1
    counted = after.done & after.valid & (before.whole | after.terminated)
    running = before.replace(
        return_=jnp.where(after.done, 0.0, return_),
        length=jnp.where(after.done, 0, length),
        whole=before.whole | after.done,
    )
    return running, Finished(counted, return_, length)


def remember(before: Tally, finished: Finished) -> Tally:
    """Put one iteration's episodes, `finished` [T, B], into the ring: time order, then env order, the last K stay."""
    size = before.recent_return.shape[0]
    counted = finished.counted.reshape(-1)
    rank = jnp.cumsum(counted, dtype=jnp.int32)  # 1 for the first of them
    keep = counted & (rank > rank[-1] - size)  # so no two share a slot
    slot = jnp.where(keep, (before.recent_total + rank - 1) % size, size)  # `size` is outside: dropped
    total = before.recent_total + rank[-1]
    return before.replace(
        recent_return=before.recent_return.at[slot].set(finished.return_.reshape(-1), mode="drop"),
        recent_length=before.recent_length.at[slot].set(finished.length.reshape(-1), mode="drop"),
        recent_total=jnp.where(total >= size, size + total % size, total),  # cannot overflow
    )


def statistics(now: Tally, finished: Finished) -> dict[str, Array]:
    """Means over this iteration's episodes and over the last K; NaN where there are none."""
    episodes = jnp.sum(finished.counted, dtype=jnp.float32)
    recent = jnp.arange(now.recent_return.shape[0]) < now.recent_total

    def mean(value: Array, mask: Array) -> Array:
        return jnp.sum(jnp.where(mask, value, 0).astype(jnp.float32)) / jnp.sum(mask, dtype=jnp.float32)

    return {
        "episodes": episodes,
        "return/mean": mean(finished.return_, finished.counted),
        "episode_length/mean": mean(finished.length, finished.counted),
        "return/recent": mean(now.recent_return, recent),
        "episode_length/recent": mean(now.recent_length, recent),
    }
