"""Engines jax and warp against C MuJoCo on every model that ships.

Contact makes free trajectories part company within tens of steps whatever the precision, so each engine is asked for
*one control step* from every state that C visits in 100 steps of random control, and must then agree in every array.
Two friction cones. With the elliptic one all states must agree. With the pyramidal one, which the models use, some may
not: where a capsule stands steeper than 60 degrees on a plane, MJX and MuJoCo Warp turn the pyramid's edges along the
world's axes and C MuJoCo along the capsule's, and a pyramid's friction depends on where its edges are.
"""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjxgym import physics

MODELS = sorted(str(path.relative_to(physics.models_dir())) for path in physics.models_dir().glob("*/*.xml"))
NUM_STEPS = 100
SUBSTEPS = 2
COMPARED = [name for name in physics.Data.__dataclass_fields__ if name not in ("private", "overflow")]


def load(model: str, engine: str, cone: str) -> physics.Engine:
    compiled = physics.read_model(model)
    compiled.opt.iterations, compiled.opt.ls_iterations = 100, 50  # converged: what is compared is the model
    if cone == "elliptic" and np.any(compiled.geom_contype):  # MJX cannot trace an elliptic cone without contacts
        compiled.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    return physics.load(compiled, engine)


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
def one_step(model: str, engine: str, cone: str) -> physics.Data:
    """Where a control step from each of those states leads, everything made current. [T, ...]"""
    world = load(model, engine, cone)

    def step(qpos, qvel, ctrl):
        return world.advance(world.place(qpos, qvel, ctrl), ctrl, SUBSTEPS, refresh="velocity")

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(step))(*visited(model)).replace(private=0))


@pytest.mark.parametrize("cone", ["elliptic", "pyramidal"])
@pytest.mark.parametrize("engine", ["jax", "warp"])
@pytest.mark.parametrize("model", MODELS)
def test_a_control_step_from_any_visited_state_agrees_with_c(model, engine, cone):
    expected, found = one_step(model, "c", cone), one_step(model, engine, cone)
    for name in COMPARED:
        want, got = getattr(expected, name), getattr(found, name)
        assert want.shape == got.shape, name
        if not want.size:
            continue
        # float32 against float64: an error is judged against the largest entry of its array, as a force sensor's noise
        # grows with the forces.
        scale = max(1.0, float(np.abs(want).max()))
        error = np.abs(got - want).reshape(NUM_STEPS, -1).max(axis=1) / scale
        share, worst = (0.3, 0.4) if cone == "pyramidal" else (0.0, 2e-3)
        assert np.mean(error > 2e-3) <= share, (name, np.flatnonzero(error > 2e-3))
        assert error.max() < worst, (name, int(error.argmax()), error.max())


def test_the_ant_is_visited_on_its_feet():
    """Else the parity above would say little about contact."""
    model = physics.read_model("ant/ant.xml")
    data = mujoco.MjData(model)
    touching = 0
    for qpos in np.asarray(visited("ant/ant.xml")[0]):
        data.qpos = qpos
        mujoco.mj_forward(model, data)
        touching += data.ncon > 0
    assert touching > NUM_STEPS / 4


@pytest.mark.parametrize("model", MODELS)
def test_warp_buffers_do_not_overflow(model):
    assert not any(bits.any() for bits in one_step(model, "warp", "pyramidal").overflow)
