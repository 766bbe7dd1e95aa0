"""What an exported policy says about itself, as json can hold it: all that a controller has to know."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from mjxgym import checkpoint, machine, strict
from mjxgym.actor import COUNT, Actor
from mjxgym.config import TrainConfig

FORMAT, FORMAT_VERSION = "mjxgym policy", 1
PACKAGES = ("mjxgym", "jax", "jaxlib", "flax", "mujoco", "numpy", "onnx", "onnxruntime")  # whose versions are noted


def describe(saved: TrainConfig, env: Any, actor: Actor) -> dict[str, Any]:
    """The part that any checkpoint of a run has in common. `env` is on engine c, whatever the run's own is."""
    model = env.physics.pool.model
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": saved.task,
        "engine": saved.engine,
        "seed": saved.seed,
        "sim_dt": env.physics.sim_dt,
        "control_dt": env.control_dt,
        "substeps": env.config.substeps,
        **signature(actor, env.action_size),
        "observation": observation(env, actor),
        "action": action(env),
        "joints": [joint(model, address) for address in getattr(env, "qpos", ())],  # in the observation's order
        "actuators": [actuator(model, row) for row in range(model.nu)],  # in the order of ctrl
        "env": strict.plain(saved.env),
        # Largest difference from JAX that was let pass, by multiples of the observations' standard deviation.
        "check": {"observations": COUNT, "tolerance": {str(scale): most for scale, most in actor.tolerances.items()}},
        "versions": {name: machine.version(name) for name in PACKAGES},
    }


def signature(actor: Actor, action_size: int) -> dict[str, Any]:
    """Inputs and outputs in order, and which of them are the memory."""
    memory = [list(leaf.shape) for leaf in actor.memory]

    def shaped(names: tuple[str, ...], size: int) -> list[dict[str, Any]]:
        shapes = [[size], *memory]
        return [{"name": name, "shape": ["batch", *shape]} for name, shape in zip(names, shapes, strict=True)]

    return {
        "inputs": shaped(actor.inputs, actor.size),
        "outputs": shaped(actor.outputs, action_size),
        # `initial` goes in at an episode's start, the output of a step at the next one.
        "carry": [
            {"input": before, "output": after, "initial": leaf.tolist()}
            for before, after, leaf in zip(actor.inputs[1:], actor.outputs[1:], actor.memory, strict=True)
        ],
    }


def observation(env: Any, actor: Actor) -> dict[str, Any]:
    """The parts of what the actor reads, in order: the env's own names, or the fields of its observation."""
    terms = [(name, size) for name, size in getattr(env, "obs_names", ())]
    if sum(size for _, size in terms) != actor.size:
        terms = [(name or "obs", leaf.shape[0]) for name, leaf in checkpoint.leaves(actor.seen)]
    return {
        "meaning": "as the task makes it; normaliser and clip, in standard deviations, are inside the policy",
        "size": actor.size,
        "terms": [{"name": name, "size": size} for name, size in terms],
        "normalised": actor.normalised,
        "clip": actor.obs_clip if actor.normalised else None,
    }


def action(env: Any) -> dict[str, Any]:
    """How an action reaches the actuators; `scale` and `offset` are null where it is not so simple."""
    scale, offset = control(env) or (None, None)
    return {
        "meaning": "the mean action after the env's clip to [low, high]; ctrl = offset + scale * action",
        "size": env.action_size,
        "low": -1.0,
        "high": 1.0,
        "scale": scale,
        "offset": offset,
    }


def control(env: Any) -> tuple[list[float], list[float]] | None:
    """(scale, offset), each [A], of ctrl = offset + scale * clip(action): found by trying, in two states."""
    size = env.action_size
    probe = jnp.linspace(-1.5, 1.5, size + 1)[1:]
    actions = jnp.stack([jnp.zeros(size), jnp.ones(size), probe, -probe])

    @jax.jit
    def told(env: Any, key: jax.Array) -> jax.Array:
        state = env.reset(key)
        return jax.vmap(lambda action: env.step(state, action).data.ctrl)(actions)

    ctrl = np.stack([told(env, key) for key in jax.random.split(jax.random.key(0), 2)])  # [2, 4, nu]
    if ctrl.shape[-1] != size:
        return None
    offset = ctrl[0, 0]
    scale = ctrl[0, 1] - offset
    if not np.allclose(ctrl, offset + scale * np.clip(actions, -1.0, 1.0), rtol=1e-5, atol=1e-5):
        return None
    return scale.tolist(), offset.tolist()


def joint(model: mujoco.MjModel, address: int) -> dict[str, Any]:
    """The joint at an address of qpos."""
    row = model.jnt_qposadr.tolist().index(address)
    return {
        "name": model.joint(row).name,
        "type": word(mujoco.mjtJoint(model.jnt_type[row])),
        "range": model.jnt_range[row].tolist() if model.jnt_limited[row] else None,
        "qpos": address,
        "qvel": int(model.jnt_dofadr[row]),
    }


def actuator(model: mujoco.MjModel, row: int) -> dict[str, Any]:
    """An actuator in MuJoCo's words: its force is gain * ctrl + bias, and reaches what it drives times gear."""
    kind = word(mujoco.mjtTrn(model.actuator_trntype[row]))
    named = {"joint": model.joint, "jointinparent": model.joint, "tendon": model.tendon, "site": model.site}
    target = int(model.actuator_trnid[row, 0])
    return {
        "name": model.actuator(row).name,
        "transmission": kind,
        "target": named[kind](target).name if kind in named else None,
        "gear": model.actuator_gear[row].tolist(),
        "gaintype": word(mujoco.mjtGain(model.actuator_gaintype[row])),
        "gainprm": model.actuator_gainprm[row].tolist(),
        "biastype": word(mujoco.mjtBias(model.actuator_biastype[row])),
        "biasprm": model.actuator_biasprm[row].tolist(),
        "dyntype": word(mujoco.mjtDyn(model.actuator_dyntype[row])),
        "dynprm": model.actuator_dynprm[row].tolist(),
        "ctrlrange": model.actuator_ctrlrange[row].tolist() if model.actuator_ctrllimited[row] else None,
        "forcerange": model.actuator_forcerange[row].tolist() if model.actuator_forcelimited[row] else None,
    }


def word(kind: Any) -> str:
    """`hinge` of mjtJoint.mjJNT_HINGE."""
    return str(kind.name).rpartition("_")[2].lower()
