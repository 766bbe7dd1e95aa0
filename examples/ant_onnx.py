"""Drive an exported ant in plain MuJoCo: no JAX, no mjxgym.

    pip install mujoco onnxruntime
    python -m mjxgym.export run=runs/ant/2030-01-01_12-00-00-42 out=policy.onnx
    python examples/ant_onnx.py policy.onnx models/ant/ant.xml --steps 3000 --seed 1

The same observations, starts and ends as in `mjxgym/envs/ant.py`; its settings are in the file's metadata. What a
controller of another robot would take from here is `Policy`; the rest is the task.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import mujoco
import numpy as np
import onnxruntime


class Policy:
    """An exported policy and its memory, for one robot."""

    def __init__(self, path: str) -> None:
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.about = {key: read(text) for key, text in self._session.get_modelmeta().custom_metadata_map.items()}
        self._inputs = [one.name for one in self._session.get_inputs()]
        self.reset()

    def reset(self) -> None:
        """Forget: an episode begins."""
        self._memory = [np.array(part["initial"], np.float32)[None] for part in self.about["carry"]]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The action for an observation, and the memory one step on."""
        arrays = dict(zip(self._inputs, [obs.astype(np.float32)[None], *self._memory], strict=True))
        action, *self._memory = self._session.run(None, arrays)
        return action[0]

    def ctrl(self, action: np.ndarray) -> np.ndarray:
        """What the actuators are told."""
        how = self.about["action"]
        return np.array(how["offset"]) + np.array(how["scale"]) * np.clip(action, how["low"], how["high"])


def read(text: str) -> Any:
    """Metadata is json, except for plain text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


class Ant:
    """The task around a model; `about` is the policy's metadata."""

    def __init__(self, model: mujoco.MjModel, about: dict[str, Any]) -> None:
        self.model, self.data, self.settings = model, mujoco.MjData(model), about["env"]
        joints = [model.joint(one["name"]) for one in about["joints"]]
        self.qpos = [joint.qposadr[0] for joint in joints]
        self.qvel = [joint.dofadr[0] for joint in joints]
        self.lower, self.upper = np.array([joint.range for joint in joints]).T
        sensors = [model.sensor(f"{kind}_{leg}") for leg in (1, 2, 3, 4) for kind in ("force", "torque")]
        self.wrench = [sensor.adr[0] + axis for sensor in sensors for axis in range(3)]

    def reset(self, rng: np.random.Generator) -> None:
        """A fresh start: joints near their admissible angle nearest to 0."""
        settings, data = self.settings, self.data
        mujoco.mj_resetData(self.model, data)
        near = np.clip(0.0, self.lower, self.upper)
        near = near + rng.uniform(-settings["start_pos"], settings["start_pos"], near.shape)
        data.qpos[:7] = [0.0, 0.0, settings["start_height"], 1.0, 0.0, 0.0, 0.0]
        data.qpos[self.qpos] = np.clip(near, self.lower, self.upper)
        data.qvel[self.qvel] = rng.uniform(-settings["start_vel"], settings["start_vel"], near.shape)
        mujoco.mj_forward(self.model, data)

    def observe(self, action: np.ndarray) -> np.ndarray:
        """The 60 numbers of the state that `action` led to."""
        settings, data = self.settings, self.data
        w, x, y, z = data.qpos[3:7]
        roll = np.arctan2(2.0 * (w * x + y * z), w * w - x * x - y * y + z * z)
        yaw = np.arctan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)
        if not settings["wrap_angles"]:
            roll, yaw = roll % (2.0 * np.pi), yaw % (2.0 * np.pi)
        to_target = np.array(settings["target"]) - data.qpos[:2]
        target_angle = np.arctan2(to_target[1], to_target[0]) - yaw
        if settings["wrap_angles"]:
            target_angle = (target_angle + np.pi) % (2.0 * np.pi) - np.pi
        matrix = np.empty(9)
        mujoco.mju_quat2Mat(matrix, data.qpos[3:7] / np.linalg.norm(data.qpos[3:7]))
        matrix = matrix.reshape(3, 3)  # columns: the torso's axes in the world
        parts = {
            "height": data.qpos[2],
            "linvel_body": matrix.T @ data.qvel[:3],
            "angvel_body": data.qvel[3:6],  # MuJoCo has a free joint's in the body's frame already
            "yaw": yaw,
            "roll": roll,
            "target_angle": target_angle,
            "up": matrix[2, 2],
            "heading": matrix[:2, 0] @ to_target / np.linalg.norm(to_target),
            "joint_pos": (2.0 * data.qpos[self.qpos] - self.upper - self.lower) / (self.upper - self.lower),
            "joint_vel": data.qvel[self.qvel] * settings["joint_vel_scale"],
            "foot_wrench": data.sensordata[self.wrench] * settings["wrench_scale"],
            "last_action": action,
        }
        return np.concatenate([np.atleast_1d(part) for part in parts.values()])

    def fallen(self) -> bool:
        """The episode ends before its time."""
        return bool(self.data.qpos[2] < self.settings["death_height"])


def episode(ant: Ant, policy: Policy, rng: np.random.Generator, most: int) -> tuple[int, float]:
    """(control steps, distance along x in m), from a fresh start until it falls, `most` steps at the longest."""
    policy.reset()
    ant.reset(rng)
    action, length = np.zeros(policy.about["action"]["size"]), 0
    while length < most and not ant.fallen():
        action = policy(ant.observe(action))
        ant.data.ctrl[:] = policy.ctrl(action)
        mujoco.mj_step(ant.model, ant.data, nstep=policy.about["substeps"])
        length += 1
    return length, float(ant.data.qpos[0])


def main() -> None:
    """Episodes until all steps are spent; a line for each."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("policy", help="what mjxgym.export wrote, *.onnx")
    words.add_argument("model", help="models/ant/ant.xml")
    words.add_argument("--steps", type=int, default=1000, help="control steps in all")
    words.add_argument("--seed", type=int, default=0, help="of the starts")
    given = words.parse_args()

    policy = Policy(given.policy)
    about = policy.about
    model = mujoco.MjModel.from_xml_path(given.model)
    names = [model.actuator(row).name for row in range(model.nu)]
    if about["task"] != "ant" or names != [one["name"] for one in about["actuators"]]:
        words.error(f"{given.policy} is of task {about['task']} and does not fit {given.model}")
    model.opt.timestep = about["sim_dt"]
    print(f"{about['task']}, iteration {about['iteration']}: {about['control_dt']} s a control step")

    ant, rng, left, number = Ant(model, about), np.random.default_rng(given.seed), given.steps, 0
    while left > 0:
        number += 1
        length, distance = episode(ant, policy, rng, min(left, about["env"]["episode_length"]))
        left -= length
        speed = distance / (length * about["control_dt"])
        end = "fell" if ant.fallen() else "still up"
        print(f"episode {number}: {length} steps, {distance:.2f} m, {speed:.2f} m/s, {end}")


if __name__ == "__main__":
    main()
