"""Frames: rotating between world and body, and what gravity looks like from the body."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from mjxgym.physics.data import Data


def rotate(quat: Array, vector: Array) -> Array:
    """`vector` [3] of the body frame, in the world frame; `quat` [4] is the body's orientation (w, x, y, z)."""
    w, axis = quat[0], quat[1:]
    twice = 2.0 * jnp.cross(axis, vector)
    return vector + w * twice + jnp.cross(axis, twice)


def rotate_inverse(quat: Array, vector: Array) -> Array:
    """`vector` [3] of the world frame, in the body frame."""
    return rotate(quat * jnp.array([1.0, -1.0, -1.0, -1.0]), vector)


def gravity_in_body(quat: Array) -> Array:
    """The unit vector that points down, seen from the body, [3]."""
    return rotate_inverse(quat, jnp.array([0.0, 0.0, -1.0]))


def euler_xyz(quat: Array) -> Array:
    """Roll, pitch, yaw [3] in (-pi, pi] (pitch in [-pi/2, pi/2]): turns about fixed x, then y, then z."""
    w, x, y, z = quat
    roll = jnp.arctan2(2.0 * (w * x + y * z), w * w - x * x - y * y + z * z)
    pitch = jnp.arcsin(jnp.clip(2.0 * (w * y - z * x), -1.0, 1.0))
    yaw = jnp.arctan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)
    return jnp.stack([roll, pitch, yaw])


def wrap(angle: Array) -> Array:
    """The same angle in [-pi, pi)."""
    return jnp.mod(angle + jnp.pi, 2.0 * jnp.pi) - jnp.pi


def body_velocity(data: Data, body: int, root: int) -> tuple[Array, Array]:
    """Linear velocity of the origin of `body` and its angular velocity, world frame, m/s and rad/s, each [3].

    `root` is the body at the top of its tree (`Names.root_of`). Current where `cvel` is.
    """
    angular, at_com = data.cvel[body, :3], data.cvel[body, 3:]
    return at_com + jnp.cross(angular, data.xpos[body] - data.subtree_com[root]), angular
