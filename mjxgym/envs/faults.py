"""Whether a step's physics may be believed: every task's `State.faults`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mjxgym.env import Faults, Nonfinite
from mjxgym.physics import Data, Engine, limits


def faults_of(engine: Engine, data: Data) -> Faults:
    """What went wrong in the step that led to `data`; `output` is left to `quarantine`, which sees the outputs."""
    nonfinite, diverged = limits.check(engine.limits, data)
    return Faults(Nonfinite(state=nonfinite, diverged=diverged, output=jnp.zeros((), bool)), overflow=data.overflow)


def none_yet(data: Data) -> Faults:
    """The faults of a fresh episode, all False, in the structure that `faults_of` has."""
    return jax.tree.map(jnp.zeros_like, Faults(Nonfinite(*(jnp.zeros((), bool),) * 3), overflow=data.overflow))
