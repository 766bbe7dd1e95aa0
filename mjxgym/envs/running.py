"""What Ant and Humanoid share, Isaac Gym's task of running to a target: a free root, hinges with ranges, motors."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mjxgym import physics
from mjxgym.env import State
from mjxgym.envs import observe, rewards
from mjxgym.envs.base import Base
from mjxgym.physics import Data, frames
from mjxgym.tree import static


class Bearing(NamedTuple):
    """The root in the world and towards the target. "body" is the root's frame."""

    height: Array  # [] m
    linvel_body: Array  # [3] m/s
    angvel_body: Array  # [3] rad/s
    yaw: Array  # [] rad, (-pi, pi]
    roll: Array  # [] rad, likewise
    target_angle: Array  # [] rad, direction of the target less yaw, not wrapped
    up: Array  # [] vertical part of the root's up axis
    heading: Array  # [] the root's forward axis along the direction of the target


class Runner(Base):
    """A task whose model begins with a free joint; J joints, each with a motor of the same name, in the same order."""

    lower: Array  # [J] rad, joint ranges
    upper: Array  # [J]
    qpos: tuple[int, ...] = static()  # addresses of the joints
    qvel: tuple[int, ...] = static()
    sensors: tuple[int, ...] = static()  # addresses of the foot sensors

    @property
    def action_size(self) -> int:
        return len(self.qpos)

    def reset(self, key: Array) -> State:
        key, pos_key, vel_key = jax.random.split(key, 3)
        config, size = self.config, (self.action_size,)
        joints = jnp.clip(0.0, self.lower, self.upper)  # the admissible angles nearest to 0
        joints += jax.random.uniform(pos_key, size, minval=-config.start_pos, maxval=config.start_pos)
        joint_vel = jax.random.uniform(vel_key, size, minval=-config.start_vel, maxval=config.start_vel)
        root = jnp.array([0.0, 0.0, config.start_height, 1.0, 0.0, 0.0, 0.0])
        qpos = jnp.asarray(self.physics.names.qpos0).at[:7].set(root)
        data = self.physics.place(
            qpos=qpos.at[jnp.array(self.qpos)].set(jnp.clip(joints, self.lower, self.upper)),
            qvel=jnp.zeros(self.physics.names.nv).at[jnp.array(self.qvel)].set(joint_vel),
        )
        return self.begin(data, observe.join(self.observe(data, jnp.zeros(size))), key)

    def step(self, state: State, action: Array) -> State:
        action = jnp.clip(action, -1.0, 1.0)
        # Nothing is refreshed: what is observed is qpos and qvel, always current, and the forces of the last substep.
        data = self.physics.advance(state.data, action, self.config.substeps)
        obs = self.observe(data, action)
        dead = obs.height < self.config.death_height
        return self.follow(state, data, observe.join(obs), self.reward_terms(state.data, data, obs, dead), dead)

    def observe(self, data: Data, action: Array) -> Any:
        """The observation of a state that `action` [J] led to, a NamedTuple with the fields of `Bearing` first."""
        raise NotImplementedError

    def reward_terms(self, before: Data, after: Data, obs: Any, dead: Array) -> Any:
        """The published terms. `obs` is of `after`."""
        raise NotImplementedError

    def bearing(self, data: Data) -> Bearing:
        """Where the root is and where it looks."""
        quat, (roll, _, yaw) = data.qpos[3:7], frames.euler_xyz(data.qpos[3:7])
        to_target = jnp.array(self.config.target) - data.qpos[:2]
        forward = frames.rotate(quat, jnp.array([1.0, 0.0, 0.0]))
        return Bearing(
            height=data.qpos[2],
            linvel_body=frames.rotate_inverse(quat, data.qvel[:3]),
            angvel_body=data.qvel[3:6],
            yaw=yaw,
            roll=roll,
            target_angle=jnp.arctan2(to_target[1], to_target[0]) - yaw,
            up=frames.rotate(quat, jnp.array([0.0, 0.0, 1.0]))[2],
            heading=jnp.dot(forward[:2], to_target) / jnp.linalg.norm(to_target),
        )

    def joint_pos(self, data: Data) -> Array:
        """[J] joint ranges mapped to [-1, 1]."""
        return observe.unscale(data.qpos[jnp.array(self.qpos)], self.lower, self.upper)

    def progress(self, before: Data, after: Data) -> Array:
        """Speed towards the target, m/s."""
        return rewards.approach(before.qpos[:2], after.qpos[:2], jnp.array(self.config.target)) / self.control_dt

    def upright(self, obs: Any) -> Array:
        """1 while the root's up axis is nearly vertical."""
        return (obs.up > self.config.upright_above).astype(jnp.float32)

    def heading(self, obs: Any) -> Array:
        """1 while the root faces the target, falling to 0 at a right angle and to -1.25 behind."""
        return jnp.minimum(obs.heading / self.config.heading_above, 1.0)


def parts(
    config: Any, engine: str, arrays: tuple[str, ...], joints: tuple[str, ...], sensors: tuple[str, ...], where: str
) -> dict[str, Any]:
    """The fields of a `Runner`: its model loaded, its names resolved and checked; `where` names the task's file."""
    loaded = physics.load(config.model, engine, arrays=arrays)
    found = loaded.names.joints(*joints)
    if loaded.names.actuators(*joints).tolist() != list(range(loaded.names.nu)):
        raise ValueError(f"{config.model}: the motors must be {', '.join(joints)}, in this order ({where})")
    if not np.all(np.isfinite([found.lower, found.upper])):
        raise ValueError(f"{config.model}: every joint of {', '.join(joints)} needs a range ({where})")
    return {
        "physics": loaded,
        "config": config,
        "lower": jnp.asarray(found.lower),
        "upper": jnp.asarray(found.upper),
        "qpos": tuple(found.qpos.tolist()),
        "qvel": tuple(found.qvel.tolist()),
        "sensors": tuple(loaded.names.sensor(*sensors).tolist()),
    }
