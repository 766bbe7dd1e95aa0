"""What a model can do at all: the line between fast and broken.

A world can leave physics behind without a NaN: a light limb under a bang-bang torque reaches thousands of rad/s and
stays finite for hundreds of steps, long enough to ruin every statistic that sees it. So a state is called *diverged*
once one substep moves a joint farther than the time step can resolve:

    hinge, ball, free rotation   |w| * sim_dt > 1 rad
    slide, free translation      |v| * sim_dt > the model's length (MuJoCo's stat.extent), at least 1 m
    limited joint                more than pi rad, or one such length, outside its range
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np
from jax import Array

from mjxgym.physics.data import Data


class Limits(NamedTuple):
    """Bounds on a state that is still physics."""

    qvel: np.ndarray  # [nv] largest magnitude, m/s or rad/s
    qpos_lower: np.ndarray  # [nq] m or rad; -inf where unbounded
    qpos_upper: np.ndarray  # [nq]


def of_model(model: mujoco.MjModel) -> Limits:
    """The bounds of a compiled model."""
    angle, length = 1.0, max(1.0, float(model.stat.extent))
    step = np.full(model.nv, angle)
    lower, upper = np.full(model.nq, -np.inf), np.full(model.nq, np.inf)
    for joint in range(model.njnt):
        kind, dof, at = int(model.jnt_type[joint]), model.jnt_dofadr[joint], model.jnt_qposadr[joint]
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            step[dof : dof + 3] = length
        elif kind == mujoco.mjtJoint.mjJNT_SLIDE:
            step[dof] = length
        scalar = kind in (mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE)
        if scalar and model.jnt_limited[joint]:
            slack = np.pi if kind == mujoco.mjtJoint.mjJNT_HINGE else length
            lower[at], upper[at] = model.jnt_range[joint] + np.array([-slack, slack])
    bounds = (step / model.opt.timestep, lower, upper)
    return Limits(*(bound.astype(np.float32) for bound in bounds))


def check(limits: Limits, data: Data) -> tuple[Array, Array]:
    """(not finite, finite but diverged), each [] bool."""
    state = jnp.concatenate([data.qpos, data.qvel, data.act])
    finite = jnp.all(jnp.isfinite(state))
    inside = (
        jnp.all(jnp.abs(data.qvel) <= limits.qvel)
        & jnp.all(data.qpos >= limits.qpos_lower)
        & jnp.all(data.qpos <= limits.qpos_upper)
    )
    return ~finite, finite & ~inside
