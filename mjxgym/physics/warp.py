"""Engine `warp`: MuJoCo Warp, the kernels that ship with MJX. The default on CUDA; runs on CPU too, for tests.

One call into Warp makes a whole control step: all substeps, the refresh and the copies out, captured once as a CUDA
graph. (MJX's own `step` is a call for each substep that carries about 170 buffers, contact pool included, through
XLA.) Warp keeps the scratch memory of a batch on its side; a world's true state goes in and comes out, so the call
is a pure function of its arguments. Two calls that share scratch memory must not overlap: XLA runs a program's calls
in order on one stream.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import warp as wp
from jax import Array

from mjxgym.physics import limits
from mjxgym.physics.batching import over_worlds
from mjxgym.physics.data import ARRAYS, Data
from mjxgym.physics.derivatives import refuse
from mjxgym.physics.engine import Stage
from mjxgym.physics.limits import Limits
from mjxgym.physics.names import Names
from mjxgym.physics.sizes import Sizes, overflow_from_bits, probe
from mjxgym.tree import Record, static

wp.config.log_level = wp.LOG_ERROR  # before the kernels' import starts Warp, which would print a page
from mujoco.mjx.third_party import mujoco_warp as mjw  # noqa: E402

_UNROLLED = 8  # solver iterations
_STATE = ("time", "qpos", "qvel", "act", "qacc_warmstart")  # advanced in place
_INPUTS = ("ctrl", "qfrc_applied", "xfrc_applied")
_NO_DERIVATIVES = (
    "engine=warp has no derivatives: use engine=jax for one, "
    "or jax.lax.stop_gradient on actions and states where none is meant"
)


class Scratch(NamedTuple):
    """Warp's side of one batch on one device. Its contents between calls mean nothing."""

    model: Any  # mjw.Model
    blind: Any  # the same without sensors, for substeps whose readings nobody sees
    data: Any  # mjw.Data


class Host:
    """The compiled model and, for each number of worlds in a compiled program, its scratch memory and calls."""

    def __init__(self, model: mujoco.MjModel, sizes: Sizes, arrays: tuple[str, ...] = ARRAYS) -> None:
        self.model = model
        self.sizes = sizes
        self.outputs = (*arrays, "overflow")
        self._scratch: dict[tuple[str, int], Scratch] = {}
        self._models: dict[str, Any] = {}

    def scratch(self, device: str, num_worlds: int) -> Scratch:
        """Made, and all kernels compiled by a first step, before a graph is captured: neither may happen inside."""
        key = (device, num_worlds)
        if key not in self._scratch:
            with wp.ScopedDevice(device):
                if device not in self._models:
                    placed = mjw.put_model(self.model)
                    placed.opt.warn_overflow = 0  # bits are still recorded; printing would stop the GPU
                    # The few solver iterations of a model for training cost less unrolled than asked after: 611 us
                    # a step for 640 us (ant, 4096 worlds, 4 iterations, H200).
                    placed.opt.graph_conditional = placed.opt.iterations > _UNROLLED
                    self._models[device] = placed
                model = self._models[device]
                blind = model.opt.disableflags | mujoco.mjtDisableBit.mjDSBL_SENSOR.value
                made = Scratch(
                    model,
                    dataclasses.replace(model, opt=dataclasses.replace(model.opt, disableflags=blind)),
                    mjw.make_data(
                        self.model,
                        nworld=num_worlds,
                        naconmax=self.sizes.contacts * num_worlds,
                        njmax=self.sizes.constraints,
                    ),
                )
                mjw.step(made.model, made.data)
                mjw.step(made.blind, made.data)
                self._scratch[key] = made
        return self._scratch[key]

    @functools.cache  # noqa: B019 (a host lives as long as the engine that holds it)
    def caller(self, num_worlds: int, substeps: int, stage: Stage) -> Callable[..., Sequence[Array]]:
        """The JAX callable that advances `num_worlds` worlds; `substeps=0` runs a full forward instead."""
        blank = self.scratch(_warp_device(jax.devices()[0]), num_worlds).data
        state, inputs = self.present(blank, _STATE), self.present(blank, _INPUTS)
        derived = self.present(blank, self.outputs)

        def run(*arrays: wp.array) -> None:
            given = dict(zip((*state, *inputs), arrays, strict=False))
            outputs = arrays[len(given) :]
            model, blind, data = self.scratch(str(arrays[0].device), num_worlds)
            for name, array in given.items():
                setattr(data, name, array)  # kernels work on XLA's own buffers
            data.overflow.zero_()
            if substeps == 0:
                mjw.forward(model, data)
            for substep in range(substeps):
                mjw.step(blind if substep + 1 < substeps else model, data)
            if stage != "none":
                mjw.fwd_position(model, data)
                mjw.sensor_pos(model, data)
            if stage == "velocity":
                mjw.fwd_velocity(model, data)
                mjw.sensor_vel(model, data)
            for name, array in zip(derived, outputs, strict=True):
                wp.copy(array, getattr(data, name))

        kinds = {name: _annotation(getattr(blank, name)) for name in (*state, *inputs)}
        kinds |= {f"{name}_out": _annotation(getattr(blank, name)) for name in derived}
        jax_callable: Callable[..., Sequence[Array]] = wp.jax_callable(
            _with_signature(run, kinds),
            num_outputs=len(state) + len(derived),
            graph_mode=_graph_mode(),
            vmap_method=None,
            output_dims={f"{name}_out": getattr(blank, name).shape for name in derived},
            in_out_argnames=state,
        )
        return jax_callable

    @staticmethod
    def present(data: Any, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of `names` that the model has anything of."""
        return tuple(name for name in names if getattr(data, name).size)


@dataclasses.dataclass(frozen=True)
class _Call:
    """A host's call with its settings; equal ones compare equal, so that JAX compiles once."""

    host: Host
    substeps: int
    stage: Stage

    def __call__(self, *arrays: Array) -> Sequence[Array]:
        return self.host.caller(arrays[0].shape[0], self.substeps, self.stage)(*arrays)


class Kept(NamedTuple):
    """What a world carries from one control step to the next, besides what everybody may read."""

    qacc_warmstart: Array  # [nv] where the constraint solver starts


class Warp(Record):
    """MuJoCo Warp behind the `Engine` protocol."""

    limits: Limits
    host: Host = static()
    names: Names = static()
    sim_dt: float = static()

    @property
    def name(self) -> str:
        return "warp"

    def place(self, qpos: Array, qvel: Array, ctrl: Array | None = None, act: Array | None = None) -> Data:
        """See `Engine.place`."""
        model = self.host.model
        values = {
            "time": jnp.zeros(()),
            "qpos": qpos,
            "qvel": qvel,
            "act": jnp.zeros(model.na) if act is None else act,
            "qacc_warmstart": jnp.zeros(model.nv),
            "ctrl": jnp.zeros(model.nu) if ctrl is None else ctrl,
        }
        return self._call(values, substeps=0, stage="none")

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
        values = {name: getattr(data, name) for name in ("time", "qpos", "qvel", "act")}
        values |= {"qacc_warmstart": data.private.qacc_warmstart, "ctrl": ctrl}
        if qfrc_applied is not None:
            values["qfrc_applied"] = qfrc_applied
        if xfrc_applied is not None:
            values["xfrc_applied"] = xfrc_applied
        return self._call(values, substeps, refresh)

    def _call(self, values: dict[str, Array], substeps: int, stage: Stage) -> Data:
        host, model = self.host, self.host.model
        values = {"qfrc_applied": jnp.zeros(model.nv), "xfrc_applied": jnp.zeros((model.nbody, 6))} | values
        blank = {name: jnp.zeros(_shape(model, name)) for name in host.outputs}
        given = [name for name in (*_STATE, *_INPUTS) if values[name].size]
        changed = [name for name in (*_STATE, *host.outputs) if (blank | values)[name].size]
        result = tuple(
            jax.ShapeDtypeStruct((blank | values)[name].shape, jnp.int32 if name == "overflow" else jnp.float32)
            for name in changed
        )
        call = _Call(host, substeps, stage)
        values = refuse(_NO_DERIVATIVES, values)
        found = over_worlds(call, result, [values[name].astype(jnp.float32) for name in given])
        known: dict[str, Any] = dict.fromkeys(ARRAYS) | blank | values | dict(zip(changed, found, strict=True))
        return Data(
            **{name: known[name] for name in (*_STATE[:-1], "ctrl", *ARRAYS)},
            overflow=overflow_from_bits(known["overflow"]),
            private=Kept(known["qacc_warmstart"]),
        )


def make(model: mujoco.MjModel, names: Names, arrays: tuple[str, ...]) -> Warp:
    """Put a compiled model into MuJoCo Warp, with buffers sized by a probe rollout."""
    host = Host(model, probe(model), arrays)
    return Warp(limits=limits.of_model(model), host=host, names=names, sim_dt=float(model.opt.timestep))


def _shape(model: mujoco.MjModel, name: str) -> tuple[int, ...]:
    """Of one world's array in `Data`."""
    if name == "overflow":
        return ()
    shape = np.shape(getattr(mujoco.MjData(model), name))
    return (shape[0], 3, 3) if name.endswith("mat") else shape


def _annotation(array: Any) -> Any:
    return wp.array(dtype=array.dtype, ndim=array.ndim)


def _with_signature(run: Callable[..., None], kinds: dict[str, Any]) -> Callable[..., None]:
    """`run` as Warp's FFI reads it: a parameter for each array, with its type."""

    def call(*arrays: wp.array) -> None:
        run(*arrays)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
        for name, kind in kinds.items()
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = dict(kinds)
    return call


def _graph_mode() -> wp.JaxCallableGraphMode:
    """Staged: one capture serves every call, though XLA hands over other buffers at each; the state is small to copy.

    Unstaged, a call of 100 control steps lost 23 ms to a new capture (H200). With several devices only unstaged runs.
    """
    if jax.default_backend() != "gpu":
        return wp.JaxCallableGraphMode.NONE
    return wp.JaxCallableGraphMode.WARP if jax.device_count() > 1 else wp.JaxCallableGraphMode.WARP_STAGED


def _warp_device(device: jax.Device) -> str:
    return "cpu" if device.platform == "cpu" else f"cuda:{device.local_hardware_id}"
