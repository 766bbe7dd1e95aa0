"""Names in an MJCF -> addresses in arrays, once, when an env is built."""

from __future__ import annotations

import difflib
from typing import NamedTuple

import mujoco
import numpy as np


class Joints(NamedTuple):
    """Scalar joints (hinge or slide) in the order they were asked for; each array [n]."""

    qpos: np.ndarray  # addresses in qpos
    qvel: np.ndarray  # addresses in qvel
    lower: np.ndarray  # range, rad or m; -inf where the joint has no limit
    upper: np.ndarray


class Names:
    """Looks up a compiled model's names. Compared by identity, so it can be static in a jitted function."""

    def __init__(self, model: mujoco.MjModel, source: str) -> None:
        self.model = model  # read only
        self.source = source  # where the model came from, for messages
        self.nq, self.nv, self.nu = int(model.nq), int(model.nv), int(model.nu)
        self.qpos0 = np.array(model.qpos0, np.float32)  # [nq] the model's reference pose

    def joints(self, *names: str) -> Joints:
        """The scalar joints called `names`; KeyError with what the model has if one is missing."""
        ids = [self._id(mujoco.mjtObj.mjOBJ_JOINT, "joint", name) for name in names]
        model = self.model
        for name, joint in zip(names, ids, strict=True):
            if int(model.jnt_type[joint]) not in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
                raise ValueError(f"{self.source}: joint '{name}' is not a hinge or slide")
        limited = model.jnt_limited[ids].astype(bool)
        return Joints(
            qpos=np.array(model.jnt_qposadr[ids]),
            qvel=np.array(model.jnt_dofadr[ids]),
            lower=np.where(limited, model.jnt_range[ids, 0], -np.inf).astype(np.float32),
            upper=np.where(limited, model.jnt_range[ids, 1], np.inf).astype(np.float32),
        )

    def actuators(self, *names: str) -> np.ndarray:
        """Addresses in ctrl of the actuators called `names`, [n]."""
        return np.array([self._id(mujoco.mjtObj.mjOBJ_ACTUATOR, "actuator", name) for name in names])

    def body(self, name: str) -> int:
        """Row of the body `name` in xpos and its like."""
        return self._id(mujoco.mjtObj.mjOBJ_BODY, "body", name)

    def root_of(self, body: int) -> int:
        """The body at the top of `body`'s kinematic tree."""
        return int(self.model.body_rootid[body])

    def site(self, name: str) -> int:
        """Row of the site `name` in site_xpos."""
        return self._id(mujoco.mjtObj.mjOBJ_SITE, "site", name)

    def sensor(self, *names: str) -> np.ndarray:
        """Addresses in sensordata of the sensors called `names`, one after another."""
        ids = [self._id(mujoco.mjtObj.mjOBJ_SENSOR, "sensor", name) for name in names]
        spans = [(self.model.sensor_adr[i], self.model.sensor_dim[i]) for i in ids]
        return np.concatenate([np.arange(start, start + size) for start, size in spans])

    def _id(self, kind: mujoco.mjtObj, word: str, name: str) -> int:
        found = mujoco.mj_name2id(self.model, kind, name)
        if found < 0:
            count = {
                "joint": self.model.njnt,
                "actuator": self.model.nu,
                "body": self.model.nbody,
                "site": self.model.nsite,
                "sensor": self.model.nsensor,
            }[word]
            known = [mujoco.mj_id2name(self.model, kind, i) or f"(unnamed {i})" for i in range(count)]
            near = difflib.get_close_matches(name, known, n=3) or known
            raise KeyError(f"{self.source} has no {word} '{name}'; it has {', '.join(near) or 'none'}")
        return found
