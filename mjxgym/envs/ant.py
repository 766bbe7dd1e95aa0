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

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from mjxgym.envs import rewards, running
from mjxgym.envs.running import Runner
from mjxgym.physics import Data, frames

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


class Ant(Runner):
    """The task on an engine. `make` builds it."""

    @property
    def obs_names(self) -> tuple[tuple[str, int], ...]:
        sizes = {"linvel_body": 3, "angvel_body": 3, "foot_wrench": len(self.sensors)}
        sizes |= dict.fromkeys(("joint_pos", "joint_vel", "last_action"), len(JOINTS))
        return tuple((name, sizes.get(name, 1)) for name in Obs._fields)

    def observe(self, data: Data, action: Array) -> Obs:
        bearing = self.bearing(data)
        if self.config.wrap_angles:
            bearing = bearing._replace(target_angle=frames.wrap(bearing.target_angle))
        else:
            angles = {name: jnp.mod(getattr(bearing, name), 2.0 * jnp.pi) for name in ("yaw", "roll")}
            turned = bearing.yaw - angles["yaw"]
            bearing = bearing._replace(**angles, target_angle=bearing.target_angle + turned)
        return Obs(
            *bearing,
            joint_pos=self.joint_pos(data),
            joint_vel=data.qvel[jnp.array(self.qvel)] * self.config.joint_vel_scale,
            foot_wrench=data.sensordata[jnp.array(self.sensors)] * self.config.wrench_scale,
            last_action=action,
        )

    def reward_terms(self, before: Data, after: Data, obs: Obs, dead: Array) -> Reward:
        action = obs.last_action
        terms = Reward(
            progress=self.progress(before, after),
            alive=1.0,
            upright=self.upright(obs),
            heading=self.heading(obs),
            effort=rewards.squared(action),
            energy=jnp.sum(jnp.abs(action * obs.joint_vel)),
            at_limit=jnp.sum(obs.joint_pos > self.config.limit_above).astype(jnp.float32),
            death=0.0,
        )
        return rewards.unless(dead, terms)._replace(death=dead.astype(jnp.float32))


def make(config: Config, engine: str = "auto") -> Ant:
    """Load the model and resolve its names."""
    return Ant(**running.parts(config, engine, ("sensordata",), JOINTS, SENSORS, "envs/ant.py"))
