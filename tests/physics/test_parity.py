"""Engines jax and warp against C MuJoCo on every model that ships.

Contact makes free trajectories part company within tens of steps whatever the precision, so each engine is asked for
*one control step* from every state that C visits in 100 steps of random control, and must then agree in every array.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mjxgym import physics

MODELS = sorted(str(path.relative_to(physics.models_dir())) for path in physics.models_dir().glob("*/*.xml"))
NUM_STEPS = 100
SUBSTEPS = 2
COMPARED = [name for name in physics.Data.__dataclass_fields__ if name not in ("private", "overflow")]


@functools.cache
def visited(model: str) -> tuple[jax.Array, jax.Array, jax.Array]:
    """qpos [T, nq], qvel [T, nv] and ctrl [T, nu] of 100 steps of C MuJoCo under random controls."""
    world = physics.load(model, "c")
    names = world.names
    controls = jax.random.uniform(jax.random.key(0), (NUM_STEPS, names.nu), minval=-1.0)

    def step(data, ctrl):
        return world.advance(data, ctrl, SUBSTEPS), (data.qpos, data.qvel)

    start = world.place(jnp.asarray(names.qpos0), jnp.zeros(names.nv))
    _, (qpos, qvel) = jax.jit(lambda data: jax.lax.scan(step, data, controls))(start)
    return qpos, qvel, controls


@functools.cache
def one_step(model: str, engine: str) -> physics.Data:
    """Where a control step from each of those states leads, everything made current. [T, ...]"""
    world = physics.load(model, engine)

    def step(qpos, qvel, ctrl):
        return world.advance(world.place(qpos, qvel, ctrl), ctrl, SUBSTEPS, refresh="velocity")

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(step))(*visited(model)).replace(private=0))


@pytest.mark.parametrize("engine", ["jax", "warp"])
@pytest.mark.parametrize("model", MODELS)
def test_a_control_step_from_any_visited_state_agrees_with_c(model, engine):
    expected, found = one_step(model, "c"), one_step(model, engine)
    for name in COMPARED:
        want, got = getattr(expected, name), getattr(found, name)
        assert want.shape == got.shape, name
        # float32 against float64, and a solver that stops after a few iterations: an error is judged against the
        # largest entry of its array, as a force sensor's noise grows with the forces.
        scale = max(1.0, float(np.abs(want).max(initial=0.0)))
        np.testing.assert_allclose(got, want, atol=2e-3 * scale, rtol=0, err_msg=f"{model} {engine} {name}")


@pytest.mark.parametrize("model", MODELS)
def test_visited_states_include_contact_where_the_model_can_touch(model):
    """Else the parity above would say little."""
    qpos, _, _ = visited(model)
    if model == "ant/ant.xml":
        assert float(qpos[:, 2].min()) < 0.5  # the torso has come down onto its feet
    assert bool(jnp.all(jnp.isfinite(qpos)))


@pytest.mark.parametrize("model", MODELS)
def test_warp_buffers_do_not_overflow(model):
    assert not any(bits.any() for bits in one_step(model, "warp").overflow)
