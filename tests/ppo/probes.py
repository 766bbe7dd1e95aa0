"""Environments so small that the right value and the right action are known; a learner that misses one names its fault.

Each is a frozen pytree with `reset` and `step` over `mjxgym.env.State`, like a real task; the physics is left out.
What varies between tests is data, not type, so that tests share executables: compiling is most of their time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.env import Faults, Nonfinite, State, quarantine
from mjxgym.tree import Record, static


class Terms(NamedTuple):
    """One reward term, so that metrics have a name."""

    gain: Array


class Overflow(NamedTuple):
    """One buffer; full on the first step of an episode, so that there is something to count."""

    contacts: Array


def start(obs: Any, key: Array, memory: Any = ()) -> State:
    """A state after reset."""
    no, zero = jnp.zeros((), bool), jnp.zeros(())
    faults = Faults(Nonfinite(no, no, no), Overflow(no))
    return State((), obs, zero, no, no, jnp.zeros((), jnp.int32), key, memory, Terms(zero), faults)


def advance(state: State, obs: Any, reward: Array, length: Array | int, terminates: Array | bool) -> State:
    """The state one step on; at `length` steps it ends, by termination or else by truncation."""
    step_count = state.step_count + 1
    end = step_count >= length
    terminates = jnp.asarray(terminates)
    return state.replace(
        obs=obs, reward=reward, terminated=end & terminates, truncated=end & ~terminates, step_count=step_count,
        metrics=Terms(reward), faults=state.faults._replace(overflow=Overflow(step_count == 1)),
    )  # fmt: skip


def coin(key: Array) -> Array:
    """[1] float32, +1 or -1."""
    return jnp.where(jax.random.bernoulli(key), 1.0, -1.0)[None]


class Ladder(Record):
    """Five reward rules; the obs is [a coin thrown at reset, the phase of the episode]."""

    rung: Array  # [] int32, an index into RUNGS
    episode_length: Any  # [] int32
    terminates: Array  # [] bool, the end is a termination; else a truncation

    @property
    def action_size(self) -> int:
        return 1

    def reset(self, key: Array) -> State:
        return start(jnp.concatenate([coin(key), jnp.zeros(1)]), key)

    def step(self, state: State, action: Array) -> State:
        sign, count = state.obs[0], state.step_count + 1
        rewards = {
            "constant": jnp.ones(()),
            "obs decides": sign,
            "delayed": (count >= self.episode_length).astype(jnp.float32),
            "action decides": -jnp.square(action[0] - 0.5),
            "both": -jnp.square(action[0] - 0.5 * sign),
        }
        reward = jnp.stack([rewards[rung] for rung in RUNGS])[self.rung]
        phase = (count / self.episode_length).astype(jnp.float32)
        return advance(state, jnp.stack([sign, phase]), reward, self.episode_length, self.terminates)


RUNGS = ("constant", "obs decides", "delayed", "action decides", "both")


def ladder(rung: str, episode_length: int = 1, terminates: bool = True) -> Ladder:
    return Ladder(jnp.asarray(RUNGS.index(rung)), jnp.asarray(episode_length), jnp.asarray(terminates))


class Remember(Record):
    """The first obs shows +1 or -1, then only zeros; on the last step the reward is -(action - cue / 2)^2."""

    episode_length: int = static(default=3)

    @property
    def action_size(self) -> int:
        return 1

    def reset(self, key: Array) -> State:
        cue = coin(key)
        return start(cue, key, memory=cue[0])

    def step(self, state: State, action: Array) -> State:
        last = state.step_count + 1 >= self.episode_length
        reward = jnp.where(last, -jnp.square(action[0] - 0.5 * state.memory), 0.0)
        return advance(state, jnp.zeros(1), reward, self.episode_length, terminates=True)


class Sight(NamedTuple):
    """What the actor sees, and what only the critic may see."""

    policy: Array
    critic: Array


class Hidden(Record):
    """One step; the reward is -(action - coin / 2)^2 + coin, and only the critic sees the coin."""

    episode_length: int = static(default=1)

    @property
    def action_size(self) -> int:
        return 1

    def reset(self, key: Array) -> State:
        return start(Sight(jnp.ones(2), coin(key)), key)

    def step(self, state: State, action: Array) -> State:
        sign = state.obs.critic[0]
        return advance(state, state.obs, -jnp.square(action[0] - 0.5 * sign) + sign, 1, terminates=True)


class Walk(Record):
    """A noisy integrator, two numbers, reward minus their squares, truncated at 20 steps.

    A fragile world (`memory`) breaks at step `breaks_at`: with `poison` the step is full of NaN, without it is healthy
    but for the flag named by `cause`. A learner must not see the difference.
    """

    breaks_at: Array  # [] int32
    cause: Array  # [] int32, an index into Nonfinite's fields
    poison: Array  # [] bool
    fragile: Array  # [] bool, of every world after a reset
    episode_length: int = static(default=20)

    @property
    def action_size(self) -> int:
        return 1

    def reset(self, key: Array) -> State:
        key, draw = jax.random.split(key)
        return start(jax.random.normal(draw, (2,)), key, memory=self.fragile)

    def step(self, state: State, action: Array) -> State:
        key, draw = jax.random.split(state.key)
        obs = 0.9 * state.obs + 0.1 * action[0] + 0.1 * jax.random.normal(draw, (2,))
        breaks = state.memory & (state.step_count + 1 == self.breaks_at)
        nan = jnp.where(breaks & self.poison, jnp.nan, 0.0)
        after = advance(state, obs + nan, nan - jnp.sum(jnp.square(obs)), self.episode_length, terminates=False)
        flags = jnp.arange(3) == self.cause
        nonfinite = Nonfinite(state=breaks & flags[0], diverged=breaks & flags[1], output=jnp.zeros((), bool))
        after = after.replace(key=key, faults=after.faults._replace(nonfinite=nonfinite))
        return quarantine(state, after)


def walk(breaks_at: int = -1, cause: str = "state", poison: bool = True, fragile: bool = False) -> Walk:
    index = Nonfinite._fields.index(cause)
    return Walk(jnp.asarray(breaks_at), jnp.asarray(index), jnp.asarray(poison), jnp.asarray(fragile))
