"""Whether a step's physics may be believed: every task's `State.faults`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.env import Faults, Nonfinite, State
from mjxgym.physics import Data, Engine, limits


def faults_of(engine: Engine, data: Data) -> Faults:
    """What went wrong in the step that led to `data`; `output` is left to `quarantine`, which sees the outputs."""
    nonfinite, diverged = limits.check(engine.limits, data)
    return Faults(Nonfinite(state=nonfinite, diverged=diverged, output=jnp.zeros((), bool)), overflow=data.overflow)


def none_yet(data: Data) -> Faults:
    """The faults of a fresh episode, all False, in the structure that `faults_of` has."""
    return jax.tree.map(jnp.zeros_like, Faults(Nonfinite(*(jnp.zeros((), bool),) * 3), overflow=data.overflow))


class Snapshot(NamedTuple):
    """What is kept of a control step, so that another engine can take it again; after a scan [T, B, ...]."""

    qpos: Array  # [nq] before it
    qvel: Array  # [nv]
    act: Array  # [na]
    action: Array  # [action_size] as the policy gave it
    ctrl: Array  # [nu] what the actuators were told
    step_count: Array  # [] int32, control steps of the episode before it
    next_qpos: Array  # [nq] what the engine made of it
    next_qvel: Array  # [nv]


def snapshot(before: State, action: Array, after: State) -> Snapshot:
    """A control step; all arguments [B, ...]."""
    data: Any = before.data
    return Snapshot(
        qpos=data.qpos,
        qvel=data.qvel,
        act=data.act,
        action=action,
        ctrl=after.data.ctrl,
        step_count=before.step_count,
        next_qpos=after.data.qpos,
        next_qvel=after.data.qvel,
    )
