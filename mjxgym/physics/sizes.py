"""How much room contacts and constraints need, found by watching the model move; and overflow bits by name."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np
from jax import Array
from mujoco import batch

from mjxgym.physics.data import Overflow
from mjxgym.physics.quiet import quiet

_PROBE_WORLDS = 32
_PROBE_STEPS = 400
_HEADROOM = 1.5  # over the busiest moment seen; overflow is counted, so a bad guess shows


class Sizes(NamedTuple):
    """Per world: contacts (the pool of all worlds is this times their number) and rows of constraints."""

    contacts: int
    constraints: int


def probe(model: mujoco.MjModel) -> Sizes:
    """Run C MuJoCo under random bang-bang controls from scattered starts and take the busiest moment, with headroom."""
    random = np.random.default_rng(0)
    contacts = constraints = 0
    with quiet():
        worlds = batch.Batch(model, _PROBE_WORLDS, 0)
        ncon, nefc = worlds.bind("ncon"), worlds.bind("nefc")
        worlds.reset()
        worlds.bind("qvel")[:] += random.normal(0.0, 0.1, (_PROBE_WORLDS, model.nv))
        low, high = _control_range(model)
        for step in range(_PROBE_STEPS):
            if step % 10 == 0:
                worlds.bind("ctrl")[:] = np.where(random.random((_PROBE_WORLDS, model.nu)) < 0.5, low, high)
            worlds.step()
            contacts, constraints = max(contacts, int(ncon.max())), max(constraints, int(nefc.max()))
    grow = lambda peak: int(np.ceil(_HEADROOM * peak)) + 4  # noqa: E731
    return Sizes(contacts=grow(contacts), constraints=grow(constraints))


def overflow_from_bits(bits: Array) -> Overflow:
    """MuJoCo Warp's OverflowType bits [] int32 by name. Solver iteration limits are no fault and left out."""

    def any_of(mask: int) -> Array:
        return jnp.bitwise_and(bits, mask) != 0

    return Overflow(
        constraints=any_of(1 | 2),  # NEFC, NJMAX_NNZ
        broadphase=any_of(4),  # BROADPHASE
        narrowphase=any_of(8),  # NARROWPHASE
        collision=any_of(16 | 32 | 256),  # CCD, HFIELD, EPA_HORIZON
        other=any_of(64 | 128 | 2048),  # CONTACT_MATCH, NVMAX, TACTILE
    )


def _control_range(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    limited = model.actuator_ctrllimited.astype(bool)
    low = np.where(limited, model.actuator_ctrlrange[:, 0], -1.0)
    return low, np.where(limited, model.actuator_ctrlrange[:, 1], 1.0)
