"""Engine `jax`: MJX in pure JAX. For TPU and AMD, and bitwise repeatable on CPU.

Derivatives exist in forward mode, and in reverse mode where the model's solver has `iterations="1"`. With that setting
MJX's are NaN, in both modes, wherever constraints are possible and none acts, such as in free flight.

Between control steps a world keeps only what the next one depends on; everything derived is recomputed inside, where
XLA drops what nobody reads. Compile time and step time follow the number of *possible* contacts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np
from jax import Array
from mujoco import mjx
from mujoco.mjx._src import forward as stages
from mujoco.mjx._src import sensor

from mjxgym.physics import limits
from mjxgym.physics.data import ARRAYS, Data
from mjxgym.physics.derivatives import refuse_reverse
from mjxgym.physics.engine import Stage
from mjxgym.physics.limits import Limits
from mjxgym.physics.mjx_settings import mjx_settings
from mjxgym.physics.names import Names
from mjxgym.tree import Record, static


class Kept(NamedTuple):
    """What a world carries from one control step to the next, besides what everybody may read."""

    qacc_warmstart: Array  # [nv] where the constraint solver starts


class Mjx(Record):
    """MJX's own JAX implementation behind the `Engine` protocol. `model`'s arrays are leaves, so jit takes them in."""

    model: mjx.Model
    limits: Limits
    names: Names = static()
    arrays: tuple[str, ...] = static()
    sim_dt: float = static()

    @property
    def name(self) -> str:
        return "jax"

    def place(self, qpos: Array, qvel: Array, ctrl: Array | None = None, act: Array | None = None) -> Data:
        """See `Engine.place`."""
        with mjx_settings():
            blank = mjx.make_data(self.model)
            ctrl = blank.ctrl if ctrl is None else ctrl
            act = blank.act if act is None else act
            return self._public(_forward(self.model, blank.replace(qpos=qpos, qvel=qvel, act=act, ctrl=ctrl)))

    def advance(
        self,
        data: Data,
        ctrl: Array,
        substeps: int,
        refresh: Stage = "none",
        qfrc_applied: Array | None = None,
        xfrc_applied: Array | None = None,
    ) -> Data:
        """See `Engine.advance`."""
        inner = mjx.make_data(self.model)
        inner = inner.replace(
            time=data.time,
            qpos=data.qpos,
            qvel=data.qvel,
            act=data.act,
            ctrl=ctrl,
            qacc_warmstart=data.private.qacc_warmstart,
            qfrc_applied=inner.qfrc_applied if qfrc_applied is None else qfrc_applied,
            xfrc_applied=inner.xfrc_applied if xfrc_applied is None else xfrc_applied,
        )
        with mjx_settings():
            inner = jax.lax.fori_loop(0, substeps, lambda _, d: _step(self.model, d), inner)
            return self._public(self._refresh(inner, refresh))

    def _refresh(self, inner: mjx.Data, stage: Stage) -> mjx.Data:
        if stage != "none":
            inner = sensor.sensor_pos(self.model, stages.fwd_position(self.model, inner))
        if stage == "velocity":
            inner = sensor.sensor_vel(self.model, stages.fwd_velocity(self.model, inner))
        return inner

    def _public(self, inner: mjx.Data) -> Data:
        asked: dict[str, Any] = {name: getattr(inner, name) if name in self.arrays else None for name in ARRAYS}
        data = Data(
            time=inner.time,
            qpos=inner.qpos,
            qvel=inner.qvel,
            act=inner.act,
            ctrl=inner.ctrl,
            **asked,
            overflow=(),
            private=Kept(inner.qacc_warmstart),
        )
        iterations = int(self.model.opt.iterations)
        if iterations == 1 or not _has_constraints(inner):
            return data
        # Several iterations are a `while_loop`, which has no reverse mode; a single one is plain code.
        return refuse_reverse(
            "reverse-mode derivatives of engine=jax need a constraint solver of one iteration, and "
            f'{self.names.source} has iterations="{iterations}": use forward mode (jax.jvp, jax.jacfwd); or '
            'write <option iterations="1"/> there, with which they are NaN while no constraint acts; or '
            "jax.lax.stop_gradient where none is meant",
            data,
        )


def make(model: mujoco.MjModel, names: Names, arrays: tuple[str, ...]) -> Mjx:
    """Put a compiled model into MJX. NotImplementedError names a feature MJX's JAX code lacks."""
    ignored = [what for what, used in _ignored_features(model).items() if used]
    if ignored:
        raise NotImplementedError(f"{names.source} has {', '.join(ignored)}, which engine=jax ignores; use warp or c")
    try:
        placed = mjx.put_model(model, impl="jax")
    except NotImplementedError as error:
        raise NotImplementedError(f"{names.source} needs what engine=jax lacks ({error}); use warp or c") from error
    sim_dt = float(model.opt.timestep)
    return Mjx(model=placed, limits=limits.of_model(model), names=names, arrays=arrays, sim_dt=sim_dt)


def _ignored_features(model: mujoco.MjModel) -> dict[str, bool]:
    """What MJX's JAX code accepts and then leaves out, by MJCF name: found by comparing it with C MuJoCo."""
    return {
        "polynomial joint damping": bool(np.any(model.dof_dampingpoly)),
        "polynomial joint stiffness": bool(np.any(model.jnt_stiffnesspoly)),
        "geom surfacevel": bool(np.any(model.geom_surfacevel)),
        "geom adhesion": bool(np.any(model.geom_adhesion)),
        "actuator delay": bool(np.any(model.actuator_delay)),
        "ellipsoid fluid forces": bool(np.any(model.geom_fluid[:, 0])),
        "noslip iterations": model.opt.noslip_iterations > 0,
    }


def _forward(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    data = mjx.forward(model, data)
    if not _has_constraints(data):  # without constraints MJX returns before its acceleration sensors
        data = sensor.sensor_acc(model, data)
    return data


def _has_constraints(data: mjx.Data) -> bool:
    """Contacts, limits or friction are possible at all."""
    return data._impl.efc_J.size > 0


def _step(model: mjx.Model, data: mjx.Data) -> mjx.Data:
    """`mjx.step` with the sensors that it leaves out."""
    integrate = {
        mujoco.mjtIntegrator.mjINT_EULER: stages.euler,
        mujoco.mjtIntegrator.mjINT_RK4: stages.rungekutta4,
        mujoco.mjtIntegrator.mjINT_IMPLICITFAST: stages.implicit,
    }[mujoco.mjtIntegrator(int(model.opt.integrator))]
    return integrate(model, _forward(model, data))
