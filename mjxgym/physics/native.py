"""Engine `c`: C MuJoCo on a thread pool, behind one callback for a whole batch of worlds.

The default on CPU, and the reference every other engine is checked against. Physics is double precision: a world's
full state row (MuJoCo's mjSTATE_INTEGRATION) travels through JAX as pairs of uint32, bit for bit, so a callback is
a pure function of its argument; the arrays that envs read are float32. Everything is packed into one array each way,
since each extra operand of a callback costs more than a world's physics.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import Array
from mujoco import batch

from mjxgym.physics import limits
from mjxgym.physics.data import ARRAYS, Data
from mjxgym.physics.derivatives import refuse
from mjxgym.physics.engine import Stage
from mjxgym.physics.limits import Limits
from mjxgym.physics.names import Names
from mjxgym.physics.quiet import quiet
from mjxgym.tree import Record, static

_STATE = ("time", "qpos", "qvel", "act")
# Unrefused, a derivative would be 0 in silence: bit patterns have none.
_NO_DERIVATIVES = (
    "engine=c has no derivatives, since C MuJoCo runs outside JAX: use engine=jax for one, "
    "or jax.lax.stop_gradient on actions and states where none is meant"
)
_STAGES: dict[Stage, int] = {
    "none": mujoco.mjtStage.mjSTAGE_NONE.value,
    "position": mujoco.mjtStage.mjSTAGE_POS.value,
    "velocity": mujoco.mjtStage.mjSTAGE_VEL.value,
}


class Pool:
    """The host's side: one `mujoco.batch.Batch` per number of worlds, made on first use and kept.

    A Batch is not persistent (one MjData a thread, not a world): results are the same to the bit, and faster, as the
    few MjData stay in cache. The lock is there because a Batch must not be entered by two threads.
    """

    def __init__(self, model: mujoco.MjModel, arrays: tuple[str, ...]) -> None:
        self.model = model
        # A state that went bad must stay visible; MuJoCo would quietly reset it.
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET.value
        data = mujoco.MjData(model)
        self.shapes = [(name, self._shape(data, name)) for name in (*_STATE, *arrays)]
        self.row_size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION)
        self.output_size = 2 * self.row_size + sum(int(np.prod(shape)) for _, shape in self.shapes)
        self._batches: dict[int, batch.Batch] = {}
        self._lock = threading.Lock()

    def place(self, start: np.ndarray) -> np.ndarray:
        """float32 [..., nq + nv + na + nu] -> uint32 [..., output_size]: reset, these set, everything current."""
        model = self.model
        start = np.asarray(start)
        flat = start.reshape(-1, start.shape[-1])
        qpos, qvel, act, ctrl = np.split(flat, np.cumsum([model.nq, model.nv, model.na]), axis=1)
        with self._lock, quiet():
            worlds = self._batch(len(flat))
            worlds.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
            for name, value in (("qpos", qpos), ("qvel", qvel), ("act", act), ("ctrl", ctrl)):
                worlds.bind(name)[:] = value
            result = self._finish(worlds, worlds.forward)
        return result.reshape(*start.shape[:-1], -1)

    def advance(self, packed: np.ndarray, *, substeps: int, stage: int) -> np.ndarray:
        """uint32 [..., state row and inputs] -> uint32 [..., output_size]."""
        model, split = self.model, 2 * self.row_size
        packed = np.asarray(packed)
        flat = packed.reshape(-1, packed.shape[-1])
        row = np.ascontiguousarray(flat[:, :split]).view(np.float64)
        inputs = np.ascontiguousarray(flat[:, split:]).view(np.float32)
        ctrl, qfrc, xfrc = np.split(inputs, np.cumsum([model.nu, model.nv]), axis=1)
        with self._lock, quiet():
            worlds = self._batch(len(flat))
            worlds.state[:] = row
            worlds.bind("ctrl")[:] = ctrl
            worlds.bind("qfrc_applied")[:] = qfrc
            worlds.bind("xfrc_applied")[:] = xfrc.reshape(len(flat), model.nbody, 6)
            result = self._finish(worlds, lambda: worlds.step(nstep=substeps, stage=stage))
        return result.reshape(*packed.shape[:-1], -1)

    def _finish(self, worlds: batch.Batch, run: Callable[[], None]) -> np.ndarray:
        try:
            run()
        except batch.SimulationError as error:
            worlds.bind("qvel")[error.ids] = np.nan  # quarantined downstream like any other broken world
        result = np.empty((worlds.nsim, self.output_size), np.uint32)
        at = 2 * self.row_size
        result[:, :at] = worlds.state.view(np.uint32)
        floats = result[:, at:].view(np.float32)
        at = 0
        with np.errstate(over="ignore", invalid="ignore"):  # a broken world's doubles may not fit float32
            for name, shape in self.shapes:
                size = int(np.prod(shape))
                floats[:, at : at + size] = worlds.bind(name).reshape(worlds.nsim, size)
                at += size
        return result

    def _batch(self, num_worlds: int) -> batch.Batch:
        if num_worlds not in self._batches:
            threads = min(num_worlds, _usable_cores())
            made = batch.Batch(self.model, num_worlds, threads)
            for name, _ in self.shapes:
                made.bind(name)
            self._batches[num_worlds] = made
        return self._batches[num_worlds]

    @staticmethod
    def _shape(data: mujoco.MjData, name: str) -> tuple[int, ...]:
        shape = np.shape(getattr(data, name))
        return (shape[0], 3, 3) if name.endswith("mat") else shape


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Advance:
    """`Pool.advance` with its settings; equal ones compare equal, so that JAX traces once."""

    pool: Pool
    substeps: int
    stage: int

    def __call__(self, packed: np.ndarray) -> np.ndarray:
        return self.pool.advance(packed, substeps=self.substeps, stage=self.stage)


class Native(Record):
    """C MuJoCo behind the `Engine` protocol. Model and threads live on the host."""

    limits: Limits
    pool: Pool = static()
    names: Names = static()
    sim_dt: float = static()

    @property
    def name(self) -> str:
        return "c"

    def place(self, qpos: Array, qvel: Array, ctrl: Array | None = None, act: Array | None = None) -> Data:
        """See `Engine.place`."""
        model = self.pool.model
        ctrl = jnp.zeros(model.nu) if ctrl is None else ctrl
        act = jnp.zeros(model.na) if act is None else act
        qpos, qvel, act, ctrl = refuse(_NO_DERIVATIVES, (qpos, qvel, act, ctrl))
        start = jnp.concatenate([qpos, qvel, act, ctrl]).astype(jnp.float32)
        return self._unpack(self._call(self.pool.place, start), ctrl)

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
        model = self.pool.model
        qfrc = jnp.zeros(model.nv) if qfrc_applied is None else qfrc_applied
        xfrc = jnp.zeros(6 * model.nbody) if xfrc_applied is None else xfrc_applied.reshape(-1)
        data, ctrl, qfrc, xfrc = refuse(_NO_DERIVATIVES, (data, ctrl, qfrc, xfrc))
        inputs = jnp.concatenate([ctrl, qfrc, xfrc]).astype(jnp.float32)
        packed = jnp.concatenate([data.private, jax.lax.bitcast_convert_type(inputs, jnp.uint32)])
        result = self._call(_Advance(self.pool, substeps, _STAGES[refresh]), packed)
        return self._unpack(result, ctrl)

    def _call(self, host: Callable[[np.ndarray], np.ndarray], argument: Array) -> Array:
        shape = jax.ShapeDtypeStruct((self.pool.output_size,), jnp.uint32)
        return jax.pure_callback(host, shape, argument, vmap_method="broadcast_all")

    def _unpack(self, result: Array, ctrl: Array) -> Data:
        row, floats = jnp.split(result, [2 * self.pool.row_size])
        floats = jax.lax.bitcast_convert_type(floats, jnp.float32)
        fields: dict[str, Any] = dict.fromkeys(ARRAYS)
        at = 0
        for name, shape in self.pool.shapes:
            size = int(np.prod(shape))
            fields[name] = floats[at : at + size].reshape(shape)
            at += size
        return Data(**fields, ctrl=ctrl, overflow=(), private=row)


def make(model: mujoco.MjModel, names: Names, arrays: tuple[str, ...]) -> Native:
    """Put a compiled model on the host's threads."""
    sim_dt = float(model.opt.timestep)
    return Native(limits=limits.of_model(model), pool=Pool(model, arrays), names=names, sim_dt=sim_dt)
