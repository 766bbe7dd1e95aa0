"""A world's steps taken again in C MuJoCo, in double precision, one control step at a time. Axes: T control steps."""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np

from mjxgym.physics.quiet import quiet


class States(NamedTuple):
    """After each control step."""

    qpos: np.ndarray  # [T, nq]
    qvel: np.ndarray  # [T, nv]


def replay(
    model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, act: np.ndarray, ctrl: np.ndarray, substeps: int
) -> States:
    """From one state ([nq], [nv], [na]), with the controls `ctrl` [T, nu]. A world that breaks stays broken."""
    before = model.opt.disableflags
    # MuJoCo would put a world that it finds broken back to its start, and hide what is looked for.
    model.opt.disableflags = int(before) | int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.act[:] = qpos, qvel, act
    found: list[tuple[np.ndarray, np.ndarray]] = []
    try:
        with quiet():
            for now in ctrl:
                data.ctrl[:] = now
                mujoco.mj_step(model, data, substeps)
                found.append((data.qpos.copy(), data.qvel.copy()))
    finally:
        model.opt.disableflags = before
    return States(*(np.stack(part) for part in zip(*found, strict=True)))


def to_bytes(model: mujoco.MjModel) -> bytes:
    """The model as MuJoCo's own binary format (MJB), which the same version reads."""
    buffer = np.empty((mujoco.mj_sizeModel(model), 1), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


def from_bytes(data: bytes) -> mujoco.MjModel:
    """The way back; ValueError if it is not of this version of MuJoCo, or not whole."""
    return mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": data})
