"""The table in physics/data.py: which arrays are current after `advance`, on every engine."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import CART, loaded, on_every_engine

SUBSTEPS = 3
PUSH = jnp.array([1.0, 0.0])  # ctrl: 10 N on 3 kg


@functools.cache
def place(engine: str):
    return jax.jit(loaded(CART, engine).place)


@functools.cache
def after(engine: str, refresh: str, substeps: int = SUBSTEPS):
    """A moving cart after one control step from rest."""
    world = loaded(CART, engine)
    start = place(engine)(jnp.zeros(1), jnp.ones(1))
    return world, jax.jit(lambda data: world.advance(data, PUSH, substeps, refresh))(start)


def where(world, data):
    return data.sensordata[world.names.sensor("where")][0] - 0.3  # the site is 0.3 m ahead of the cart


def speed(world, data):
    return data.sensordata[world.names.sensor("speed")][0]


@on_every_engine
def test_place_makes_everything_current(engine):
    world = loaded(CART, engine)
    data = place(engine)(jnp.array([0.5]), jnp.array([2.0]), PUSH)
    np.testing.assert_allclose(data.xpos[1, 0], 0.5, rtol=1e-6)
    np.testing.assert_allclose(where(world, data), 0.5, rtol=1e-5)
    np.testing.assert_allclose(speed(world, data), 2.0, rtol=1e-6)
    np.testing.assert_allclose(data.cvel[1, 3], 2.0, rtol=1e-6)
    np.testing.assert_allclose(data.qfrc_actuator[0], 10.0, rtol=1e-6)
    np.testing.assert_allclose(data.qfrc_passive[0], -0.5 * 2.0, rtol=1e-6)
    # 9 N accelerate 3 kg; 1 kg of it hangs on the sensor: 3 N along x, and its weight.
    np.testing.assert_allclose(data.sensordata[world.names.sensor("joint_force")], [3.0, 0.0, 9.81], atol=1e-4)
    assert float(data.time) == 0.0


@on_every_engine
def test_without_refresh_derived_arrays_are_one_substep_behind(engine):
    world, data = after(engine, "none")
    _, earlier = after(engine, "velocity", SUBSTEPS - 1)
    assert float(data.qpos[0]) > float(earlier.qpos[0])
    np.testing.assert_allclose(data.xpos[1, 0], earlier.qpos[0], rtol=1e-5)
    np.testing.assert_allclose(where(world, data), earlier.qpos[0], rtol=1e-4)
    np.testing.assert_allclose(data.cvel[1, 3], earlier.qvel[0], rtol=1e-5)


@on_every_engine
def test_position_makes_positions_current_and_leaves_velocities(engine):
    world, data = after(engine, "position")
    _, earlier = after(engine, "velocity", SUBSTEPS - 1)
    np.testing.assert_allclose(data.xpos[1, 0], data.qpos[0], rtol=1e-6)
    np.testing.assert_allclose(where(world, data), data.qpos[0], rtol=1e-4)
    np.testing.assert_allclose(data.cvel[1, 3], earlier.qvel[0], rtol=1e-5)
    np.testing.assert_allclose(speed(world, data), earlier.qvel[0], rtol=1e-5)


@on_every_engine
def test_velocity_makes_both_current(engine):
    world, data = after(engine, "velocity")
    np.testing.assert_allclose(data.xpos[1, 0], data.qpos[0], rtol=1e-6)
    np.testing.assert_allclose(data.cvel[1, 3], data.qvel[0], rtol=1e-6)
    np.testing.assert_allclose(speed(world, data), data.qvel[0], rtol=1e-6)
    np.testing.assert_allclose(data.qfrc_passive[0], -0.5 * data.qvel[0], rtol=1e-5)


@on_every_engine
@pytest.mark.parametrize("refresh", ["none", "position", "velocity"])
def test_forces_are_those_of_the_last_substep_whatever_is_refreshed(engine, refresh):
    world, data = after(engine, refresh)
    _, earlier = after(engine, "velocity", SUBSTEPS - 1)
    force = 10.0 - 0.5 * float(earlier.qvel[0])
    sensed = data.sensordata[world.names.sensor("joint_force")]
    np.testing.assert_allclose(sensed, [force / 3.0, 0.0, 9.81], atol=1e-4)
    np.testing.assert_allclose(data.qfrc_actuator[0], 10.0, rtol=1e-6)


@on_every_engine
def test_refreshing_never_changes_where_the_world_goes(engine):
    states = [after(engine, refresh)[1] for refresh in ("none", "position", "velocity")]
    for other in states[1:]:
        np.testing.assert_array_equal(states[0].qpos, other.qpos)
        np.testing.assert_array_equal(states[0].qvel, other.qvel)


@on_every_engine
def test_activations_follow_their_filter(engine):
    """d(act)/dt = (ctrl - act) / tau, three Euler steps of 0.01 s with tau 0.1 s."""
    world = loaded(CART, engine)
    start = place(engine)(jnp.zeros(1), jnp.zeros(1))
    data = jax.jit(lambda data: world.advance(data, jnp.array([0.0, 1.0]), SUBSTEPS))(start)
    np.testing.assert_allclose(data.act, [1 - 0.9**SUBSTEPS], rtol=1e-5)


@on_every_engine
def test_external_forces_act_for_the_step_they_are_given_to(engine):
    world = loaded(CART, engine)
    start = place(engine)(jnp.zeros(1), jnp.zeros(1))
    nothing = jnp.zeros(2)

    @jax.jit
    def run(data):
        by_joint = world.advance(data, nothing, 1, qfrc_applied=jnp.array([3.0]))
        by_body = world.advance(data, nothing, 1, xfrc_applied=jnp.zeros((3, 6)).at[2, 0].set(3.0))
        return by_joint, by_body, world.advance(by_body, nothing, 1)

    by_joint, by_body, later = run(start)
    # 3 N on 3 kg for 0.01 s; the implicit damping of Euler takes 0.5 * 0.01 / 3 of it.
    expected = 0.01 / (1 + 0.01 * 0.5 / 3)
    np.testing.assert_allclose(by_joint.qvel, [expected], rtol=1e-5)
    np.testing.assert_allclose(by_body.qvel, [expected], rtol=1e-5)
    assert float(later.qvel[0]) < expected  # no longer pushed: damping only
