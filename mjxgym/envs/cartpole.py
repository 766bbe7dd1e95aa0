"""Cart-pole: keep a pole upright by pushing its cart along a rail. Isaac Gym's task, for a first look and for tests.

Differences from Isaac Gym:

- An episode that ends is reset at once; there, one more transition is spent on the dead state.
- `truncated` is set after `episode_length` control steps of acting, and never together with `terminated`. There the
  episode ends when its counter, 1 after the first action, reaches 499: 499 actions and the one on the dead state.
- The cart and pole have the inertia of uniform boxes.
- Rail limits are soft constraints of MuJoCo; episodes end a metre before them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from mjxgym import physics
from mjxgym.env import State
from mjxgym.envs import observe, rewards
from mjxgym.envs.base import Base
from mjxgym.physics import Data
from mjxgym.tree import static


class Reward(NamedTuple):
    """The terms, before weights; a failure replaces all others."""

    alive: ArrayLike  # 1
    angle: ArrayLike  # squared angle of the pole, rad^2
    cart_speed: ArrayLike  # m/s
    pole_speed: ArrayLike  # rad/s
    failure: ArrayLike  # 1 in the step in which the pole falls or the cart leaves its stretch of rail


class Obs(NamedTuple):
    """What the policy sees, in this order."""

    cart_pos: Array  # [] m
    cart_vel: Array  # [] m/s
    pole_angle: Array  # [] rad, 0 upright
    pole_vel: Array  # [] rad/s


@dataclass(frozen=True)
class Config:
    """Numbers of IsaacGymEnvs' Cartpole; the force, 400 N at action 1, is the motor's gear in the model."""

    model: str = "cartpole/cartpole.xml"  # under models/, or any MJCF file with the same names
    substeps: int = 2  # physics steps per control step
    episode_length: int = 500  # control steps
    start_pos: float = 0.1  # m and rad, largest start of cart and pole
    start_vel: float = 0.25  # the same in m/s and rad/s
    max_pos: float = 3.0  # m, cart
    max_angle: float = 0.5 * jnp.pi  # rad, pole
    obs_clip: float = 5.0  # m, m/s, rad, rad/s
    weights: Reward = field(default=Reward(alive=1.0, angle=-1.0, cart_speed=-0.01, pole_speed=-0.005, failure=-2.0))


class Cartpole(Base):
    """The task on an engine. `make` builds it."""

    qpos: tuple[int, int] = static()  # addresses of the cart's and the pole's joint
    qvel: tuple[int, int] = static()

    @property
    def action_size(self) -> int:
        return 1

    @property
    def obs_names(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, 1) for name in Obs._fields)

    def reset(self, key: Array) -> State:
        key, pos_key, vel_key = jax.random.split(key, 3)
        pos, vel = self.config.start_pos, self.config.start_vel
        data = self.physics.place(
            qpos=jnp.zeros(2).at[jnp.array(self.qpos)].set(jax.random.uniform(pos_key, (2,), minval=-pos, maxval=pos)),
            qvel=jnp.zeros(2).at[jnp.array(self.qvel)].set(jax.random.uniform(vel_key, (2,), minval=-vel, maxval=vel)),
        )
        return self.begin(data, self.clipped(self.observe(data)), key)

    def step(self, state: State, action: Array) -> State:
        action = jnp.clip(action, -1.0, 1.0)
        data = self.physics.advance(state.data, action, self.config.substeps)
        obs = self.observe(data)
        failed = (jnp.abs(obs.cart_pos) > self.config.max_pos) | (jnp.abs(obs.pole_angle) > self.config.max_angle)
        return self.follow(state, data, self.clipped(obs), self.reward_terms(obs, failed), failed)

    def observe(self, data: Data) -> Obs:
        """Exact values: the reward sees them unclipped. qpos and qvel are always current, so nothing is refreshed."""
        (cart, pole), (cart_vel, pole_vel) = self.qpos, self.qvel
        return Obs(data.qpos[cart], data.qvel[cart_vel], data.qpos[pole], data.qvel[pole_vel])

    def clipped(self, obs: Obs) -> Array:
        """The policy's input [4]."""
        return jnp.clip(observe.join(obs), -self.config.obs_clip, self.config.obs_clip)

    def reward_terms(self, obs: Obs, failed: Array) -> Reward:
        """1 - angle^2 - 0.01 |v| - 0.005 |w| with the published weights; -2 on failure."""
        terms = Reward(
            alive=1.0,
            angle=obs.pole_angle**2,
            cart_speed=jnp.abs(obs.cart_vel),
            pole_speed=jnp.abs(obs.pole_vel),
            failure=0.0,
        )
        return rewards.unless(failed, terms)._replace(failure=failed.astype(jnp.float32))


def make(config: Config, engine: str = "auto") -> Cartpole:
    """Load the model and resolve its names."""
    loaded = physics.load(config.model, engine, arrays=())
    joints = loaded.names.joints("slide", "hinge")
    if loaded.names.actuators("slide").tolist() != list(range(loaded.names.nu)):
        raise ValueError(f"{config.model}: the only actuator must be slide (asked for by envs/cartpole.py)")
    return Cartpole(physics=loaded, config=config, qpos=tuple(joints.qpos.tolist()), qvel=tuple(joints.qvel.tolist()))
