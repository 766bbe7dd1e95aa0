"""Ant: run along world +x, towards a target 1000 m away. Isaac Gym's task.

Differences from Isaac Gym (the model's own are listed in models/ant/README.md):

- An episode that ends is reset at once; there, one more transition is spent on the dead state. The action that an
  observation carries is 0 after a reset.
- `truncated` is set after `episode_length` control steps of acting, and never together with `terminated`. There the
  episode ends when its counter, 1 after the first action, reaches 999: 999 actions and the one on the dead state.
- The angle to the target uses y, where the published code takes the height by mistake; both are nearly -yaw.
- Yaw, roll and the angle to the target lie around 0, as in Isaac Gym's Humanoid. There the ant's lie in [0, 2 pi), so
  that one which runs straight sees them jump by 2 pi at every sway; `env.wrap_angles=false` brings that back.
- The foot sensors report what passes through the ankle (MuJoCo's `force` and `torque` sensors, the foot's frame, about
  the ankle); PhysX reports a net force on the foot, of unpublished composition. Same size, other values.
- Only the feet and the torso's sphere touch the floor; there, the other limbs do too. The ant never touches itself, in
  both.
- Joint armature 0.03 kg m^2 for 0.01, and friction 1.25, the average that PhysX makes of 1.5 and the floor's 1.
- Progress is computed from positions without the potential's rounding (0.004 m/s); the definition is the same.
- Quaternions are w, x, y, z inside, but none is observed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from mjxgym import physics
from mjxgym.env import State, quarantine
from mjxgym.envs import faults, observe, rewards
from mjxgym.physics import Data, Engine, frames
from mjxgym.tree import Record, static

# The order of actions and of joint observations; each joint has a motor of the same name.
JOINTS = ("hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3", "hip_4", "ankle_4")
# The order of the foot sensors, 3 numbers each.
SENSORS = ("force_1", "torque_1", "force_2", "torque_2", "force_3", "torque_3", "force_4", "torque_4")


class Reward(NamedTuple):
    """The terms, before weights; death replaces all others."""

    progress: ArrayLike  # speed towards the target, m/s
    alive: ArrayLike  # 1
    upright: ArrayLike  # 1 while the torso's up axis is nearly vertical
    heading: ArrayLike  # 1 while the torso faces the target, falling to 0 at a right angle and to -1.25 behind
    effort: ArrayLike  # sum of squared actions
    energy: ArrayLike  # sum of |action * joint velocity * joint_vel_scale|
    at_limit: ArrayLike  # number of joints at their upper limit
    death: ArrayLike  # 1 in the step in which the torso sinks too low


class Obs(NamedTuple):
    """What the policy sees, in this order. "body" is the torso's frame."""

    height: Array  # [] m, torso
    linvel_body: Array  # [3] m/s
    angvel_body: Array  # [3] rad/s
    yaw: Array  # [] rad, (-pi, pi]; [0, 2 pi) without `wrap_angles`
    roll: Array  # [] rad, likewise
    target_angle: Array  # [] rad, direction of the target less yaw, in [-pi, pi); not wrapped without `wrap_angles`
    up: Array  # [] vertical part of the torso's up axis
    heading: Array  # [] the torso's forward axis along the direction of the target
    joint_pos: Array  # [8] joint ranges mapped to [-1, 1]
    joint_vel: Array  # [8] rad/s * joint_vel_scale
    foot_wrench: Array  # [24] N and N m * wrench_scale; force and torque of foot 1, of foot 2...
    last_action: Array  # [8] after clipping


@dataclass(frozen=True)
class Config:
    """Numbers of IsaacGymEnvs' Ant; the torque, 15 N m at action 1, is the motors' gear in the model."""

    model: str = "ant/ant.xml"  # under models/, or any MJCF file with the same names
    substeps: int = 2  # physics steps per control step
    episode_length: int = 1000  # control steps
    start_height: float = 0.44  # m, torso
    start_pos: float = 0.2  # rad, largest distance of a joint from its admissible angle nearest to 0
    start_vel: float = 0.1  # rad/s, largest start of a joint
    target: tuple[float, float] = (1000.0, 0.0)  # m, world x and y
    wrap_angles: bool = True  # False: as published, where an ant that runs straight sees its angles jump by 2 pi
    death_height: float = 0.31  # m, torso
    upright_above: float = 0.93  # of `Obs.up`
    heading_above: float = 0.8  # of `Obs.heading`
    limit_above: float = 0.99  # of `Obs.joint_pos`; the upper side only, as published
    joint_vel_scale: float = 0.2
    wrench_scale: float = 0.1
    weights: Reward = field(
        default=Reward(
            progress=1.0, alive=0.5, upright=0.1, heading=0.5, effort=-0.005, energy=-0.05, at_limit=-0.1, death=-2.0
        )
    )


class Ant(Record):
    """The task on an engine. `make` builds it."""

    physics: Engine
    lower: Array  # [8] rad, joint ranges
    upper: Array  # [8]
    config: Config = static()
    qpos: tuple[int, ...] = static()  # addresses of JOINTS
    qvel: tuple[int, ...] = static()
    sensors: tuple[int, ...] = static()  # addresses of SENSORS

    @property
    def action_size(self) -> int:
        return len(JOINTS)

    @property
    def obs_size(self) -> int:
        return sum(size for _, size in self.obs_names)

    @property
    def obs_names(self) -> tuple[tuple[str, int], ...]:
        """(name, size) of the parts of an observation, in order."""
        sizes = {"linvel_body": 3, "angvel_body": 3, "foot_wrench": len(self.sensors)}
        sizes |= dict.fromkeys(("joint_pos", "joint_vel", "last_action"), len(JOINTS))
        return tuple((name, sizes.get(name, 1)) for name in Obs._fields)

    @property
    def episode_length(self) -> int:
        return self.config.episode_length

    @property
    def control_dt(self) -> float:
        """Seconds per control step."""
        return self.physics.sim_dt * self.config.substeps

    @property
    def reward_weights(self) -> Reward:
        return self.config.weights

    def reset(self, key: Array) -> State:
        key, pos_key, vel_key = jax.random.split(key, 3)
        config, size = self.config, (len(JOINTS),)
        joints = jnp.clip(0.0, self.lower, self.upper)  # the admissible angles nearest to 0
        joints += jax.random.uniform(pos_key, size, minval=-config.start_pos, maxval=config.start_pos)
        joint_vel = jax.random.uniform(vel_key, size, minval=-config.start_vel, maxval=config.start_vel)
        root = jnp.array([0.0, 0.0, config.start_height, 1.0, 0.0, 0.0, 0.0])
        qpos = jnp.asarray(self.physics.names.qpos0).at[:7].set(root)
        data = self.physics.place(
            qpos=qpos.at[jnp.array(self.qpos)].set(jnp.clip(joints, self.lower, self.upper)),
            qvel=jnp.zeros(self.physics.names.nv).at[jnp.array(self.qvel)].set(joint_vel),
        )
        return State(
            data=data,
            obs=observe.join(self.observe(data, jnp.zeros(size))),
            reward=jnp.zeros(()),
            terminated=jnp.zeros((), bool),
            truncated=jnp.zeros((), bool),
            step_count=jnp.zeros((), jnp.int32),
            key=key,
            memory=(),
            metrics=Reward(*(jnp.zeros(()),) * len(Reward._fields)),
            faults=faults.none_yet(data),
        )

    def step(self, state: State, action: Array) -> State:
        action = jnp.clip(action, -1.0, 1.0)
        # Nothing is refreshed: what is observed is qpos and qvel, always current, and the forces of the last substep.
        data = self.physics.advance(state.data, action, self.config.substeps)
        obs = self.observe(data, action)
        dead = obs.height < self.config.death_height
        terms = self.reward_terms(state.data, data, obs, dead)
        step_count = state.step_count + 1
        after = state.replace(
            data=data,
            obs=observe.join(obs),
            reward=rewards.weighted_sum(self.config.weights, terms),
            terminated=dead,
            truncated=~dead & (step_count >= self.config.episode_length),
            step_count=step_count,
            metrics=terms,
            faults=faults.faults_of(self.physics, data),
        )
        return quarantine(state, after)

    def observe(self, data: Data, action: Array) -> Obs:
        """The observation of a state that `action` [8] led to."""
        quat, (roll, _, yaw) = data.qpos[3:7], frames.euler_xyz(data.qpos[3:7])
        wrapped = self.config.wrap_angles
        if not wrapped:
            yaw, roll = jnp.mod(yaw, 2.0 * jnp.pi), jnp.mod(roll, 2.0 * jnp.pi)
        to_target = jnp.array(self.config.target) - data.qpos[:2]
        to_target_angle = jnp.arctan2(to_target[1], to_target[0]) - yaw
        forward = frames.rotate(quat, jnp.array([1.0, 0.0, 0.0]))
        return Obs(
            height=data.qpos[2],
            linvel_body=frames.rotate_inverse(quat, data.qvel[:3]),
            angvel_body=data.qvel[3:6],
            yaw=yaw,
            roll=roll,
            target_angle=frames.wrap(to_target_angle) if wrapped else to_target_angle,
            up=frames.rotate(quat, jnp.array([0.0, 0.0, 1.0]))[2],
            heading=jnp.dot(forward[:2], to_target) / jnp.linalg.norm(to_target),
            joint_pos=observe.unscale(data.qpos[jnp.array(self.qpos)], self.lower, self.upper),
            joint_vel=data.qvel[jnp.array(self.qvel)] * self.config.joint_vel_scale,
            foot_wrench=data.sensordata[jnp.array(self.sensors)] * self.config.wrench_scale,
            last_action=action,
        )

    def reward_terms(self, before: Data, after: Data, obs: Obs, dead: Array) -> Reward:
        """The published terms. `obs` is of `after`."""
        config, action = self.config, obs.last_action
        terms = Reward(
            progress=rewards.approach(before.qpos[:2], after.qpos[:2], jnp.array(config.target)) / self.control_dt,
            alive=1.0,
            upright=(obs.up > config.upright_above).astype(jnp.float32),
            heading=jnp.minimum(obs.heading / config.heading_above, 1.0),
            effort=rewards.squared(action),
            energy=jnp.sum(jnp.abs(action * obs.joint_vel)),
            at_limit=jnp.sum(obs.joint_pos > config.limit_above).astype(jnp.float32),
            death=0.0,
        )
        return rewards.unless(dead, terms)._replace(death=dead.astype(jnp.float32))


def make(config: Config, engine: str = "auto") -> Ant:
    """Load the model and resolve its names."""
    loaded = physics.load(config.model, engine, arrays=("sensordata",))
    joints = loaded.names.joints(*JOINTS)
    if loaded.names.actuators(*JOINTS).tolist() != list(range(loaded.names.nu)):
        raise ValueError(f"{config.model}: the motors must be {', '.join(JOINTS)}, in this order (envs/ant.py)")
    if not np.all(np.isfinite([joints.lower, joints.upper])):
        raise ValueError(f"{config.model}: every joint of {', '.join(JOINTS)} needs a range (envs/ant.py)")
    return Ant(
        physics=loaded,
        lower=jnp.asarray(joints.lower),
        upper=jnp.asarray(joints.upper),
        config=config,
        qpos=tuple(joints.qpos.tolist()),
        qvel=tuple(joints.qvel.tolist()),
        sensors=tuple(loaded.names.sensor(*SENSORS).tolist()),
    )
