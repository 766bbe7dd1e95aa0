"""What an environment is: one `State`, two pure functions, and the two rules every rollout keeps.

The rules are `quarantine` (a broken world never reaches a reward or a statistic) and `reset_done` (nothing of an
episode survives its end). Axes: B envs; everything is unbatched unless it says `[B, ...]`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.tree import Record

T = TypeVar("T")


class Nonfinite(NamedTuple):
    """Why a step was quarantined; each [] bool. The names become the metrics `nonfinite/<name>`."""

    state: Array  # a position, velocity or activation is NaN or infinite
    diverged: Array  # finite, but beyond what the model can do (see `physics.limits`)
    output: Array  # the physics is sound, an observation or the reward is not


class Faults(NamedTuple):
    """What went wrong in the step that led to a state."""

    nonfinite: Nonfinite
    overflow: Any  # NamedTuple of [] bool, by the engine's own names; counted, the world goes on


def no_faults() -> Faults:
    """The faults of a healthy step in an engine that has no buffers to overflow."""
    return Faults(Nonfinite(*(jnp.zeros((), bool),) * len(Nonfinite._fields)), overflow=())


class State(Record):
    """One environment at one control step. Unbatched: `vmap` adds the leading [B]."""

    data: Any  # the engine's record (physics.Data); only the env looks inside
    obs: Any  # [obs_size] float32, raw (normalising is the learner's business), or a NamedTuple of such arrays
    reward: Array  # [] float32, for the step that led here; 0 after reset
    terminated: Array  # [] bool, the task itself ended: nothing follows, value 0
    truncated: Array  # [] bool, only the clock ran out: bootstrap from this obs
    step_count: Array  # [] int32, control steps since reset
    key: Array  # this env's own randomness (commands, noise); split, never reused
    memory: Any  # the task's own record (last action, command...), a type in its file
    metrics: Any  # NamedTuple of [] float32: the reward terms, before weights
    faults: Faults  # of the step that led here; all False after reset

    @property
    def done(self) -> Array:
        """The episode ends here, for whatever reason."""
        return self.terminated | self.truncated

    @property
    def valid(self) -> Array:
        """The step that led here may be learned from: it was not quarantined."""
        return ~jnp.any(jnp.stack(self.faults.nonfinite), axis=0)


class Env(Protocol):
    """Pure functions over `State`. An implementation is a frozen pytree, so jit takes it as an argument."""

    @property
    def action_size(self) -> int:
        """Length of an action; the env clips each entry to [-1, 1], a learner's log_prob does not."""
        ...

    @property
    def episode_length(self) -> int:
        """Control steps after which an episode is truncated."""
        ...

    def reset(self, key: Array) -> State:
        """A fresh, independently drawn start."""
        ...

    def step(self, state: State, action: Array) -> State:
        """One control step with `action` [action_size] float32. Never resets: that is `reset_done`'s part."""
        ...


class VecEnv(Record):
    """B copies of one environment: the same two functions with a leading [B]."""

    env: Env

    def reset(self, keys: Array) -> State:
        """`keys` [B] -> states [B, ...]."""
        return jax.vmap(self.env.reset)(keys)

    def step(self, states: State, actions: Array) -> State:
        """`states` [B, ...], `actions` [B, action_size] -> states [B, ...], ended ones not yet reset."""
        return jax.vmap(self.env.step)(states, actions)


def vectorise(env: Env) -> VecEnv:
    """The env over a leading [B] axis; B is whatever the keys and actions have."""
    return VecEnv(env)


def quarantine(before: State, after: State) -> State:
    """`after`, made harmless where its step broke: reward and terms 0, obs of `before`, terminated, counted by cause.

    Every env's `step` ends with it. Healthy steps pass through unchanged. The broken `data` stays until `reset_done`.
    """
    leaves = [after.reward, *jax.tree.leaves(after.obs)]
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
    cause = after.faults.nonfinite
    broken = cause.state | cause.diverged
    cause = cause._replace(output=~broken & ~finite)
    broken = broken | ~finite

    def harmless(value: Array, substitute: Array) -> Array:
        return jnp.where(broken, substitute, value)

    return after.replace(
        obs=jax.tree.map(harmless, after.obs, before.obs),
        reward=harmless(after.reward, jnp.zeros_like(after.reward)),
        metrics=jax.tree.map(lambda term: harmless(term, jnp.zeros_like(term)), after.metrics),
        terminated=after.terminated | broken,
        truncated=after.truncated & ~broken,
        faults=after.faults._replace(nonfinite=cause),
    )


def reset_done(states: State, fresh: State) -> State:
    """Where an episode ended, the whole of `fresh`; elsewhere `states`. Both [B, ...]; each env has its own start."""
    return select(states.done, fresh, states)


def select(mask: Array, chosen: T, other: T) -> T:
    """Leaf by leaf, rows of `chosen` where `mask` [B], else of `other`."""

    def leaf(new: Array, old: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (old.ndim - mask.ndim)), new, old)

    return jax.tree.map(leaf, chosen, other)
