"""Jacobians and the mass matrix, on request and the same on every engine: functions of qpos, in JAX, differentiable.

For controllers that work in task space. They cost one forward kinematics each, so they are not part of `Data`.
"""

from __future__ import annotations

import copy

import jax.numpy as jnp
import mujoco
from jax import Array
from mujoco import mjx

from mjxgym.physics.mjx_settings import mjx_settings
from mjxgym.tree import Record


class Dynamics(Record):
    """A model's kinematics and inertia. `of_model` makes one."""

    model: mjx.Model

    def jacobian(self, qpos: Array, body: int, point: Array) -> tuple[Array, Array]:
        """d(velocity of a world `point` [3] fixed to `body`) / d(qvel) and the same for rotation, each [3, nv]."""
        with mjx_settings():
            linear, angular = mjx.jac(self.model, self._at(qpos), point, jnp.int32(body))
        return linear.T, angular.T

    def mass_matrix(self, qpos: Array) -> Array:
        """The joint-space inertia, armature included, [nv, nv] in kg, kg m and kg m^2."""
        with mjx_settings():
            return mjx.full_m(self.model, mjx.crb(self.model, self._at(qpos)))

    def _at(self, qpos: Array) -> mjx.Data:
        data = mjx.make_data(self.model).replace(qpos=qpos)
        return mjx.com_pos(self.model, mjx.kinematics(self.model, data))


def of_model(model: mujoco.MjModel) -> Dynamics:
    """Kinematics of a compiled model; contacts play no part, so any geom will do."""
    bare = copy.copy(model)
    bare.geom_contype[:] = 0
    bare.geom_conaffinity[:] = 0
    return Dynamics(mjx.put_model(bare, impl="jax"))
