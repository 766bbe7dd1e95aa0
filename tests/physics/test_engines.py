"""What every engine promises under jit, vmap and scan, and what happens to a broken world."""

import jax
import jax.numpy as jnp
import numpy as np
from scenes import CART, loaded, on_every_engine


def starts(world, count):
    qvel = jnp.arange(count, dtype=jnp.float32).reshape(count, 1)
    return jax.vmap(lambda v: world.place(jnp.zeros(1), v))(qvel)


def push(world, data):
    return world.advance(data, jnp.array([1.0, 0.5]), 2)


@on_every_engine
def test_a_row_of_a_batch_is_the_single_world(engine):
    world = loaded(CART, engine)
    batch = jax.jit(jax.vmap(lambda data: push(world, data)))(starts(world, 5))
    single = push(world, world.place(jnp.zeros(1), jnp.array([3.0])))
    jax.tree.map(lambda row, one: np.testing.assert_allclose(row[3], one, rtol=1e-6, atol=1e-6), batch, single)


@on_every_engine
def test_nested_vmap_is_one_flat_batch(engine):
    world = loaded(CART, engine)
    flat = starts(world, 6)
    nested = jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), flat)
    once = jax.jit(jax.vmap(lambda data: push(world, data)))(flat)
    twice = jax.jit(jax.vmap(jax.vmap(lambda data: push(world, data))))(nested)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b.reshape(a.shape)), once, twice)


@on_every_engine
def test_a_control_shared_by_all_worlds_needs_no_axis(engine):
    world = loaded(CART, engine)
    data = starts(world, 4)
    ctrl = jnp.array([1.0, 0.5])
    shared = jax.vmap(lambda d, c: world.advance(d, c, 2), in_axes=(0, None))(data, ctrl)
    own = jax.vmap(lambda d, c: world.advance(d, c, 2))(data, jnp.tile(ctrl, (4, 1)))
    np.testing.assert_array_equal(shared.qpos, own.qpos)


@on_every_engine
def test_advance_is_a_pure_function(engine):
    """The same argument gives the same bits, whatever ran in between in the engine's own memory."""
    world = loaded(CART, engine)
    run = jax.jit(jax.vmap(lambda data: push(world, data)))
    first, other = starts(world, 4), starts(world, 4)
    other = other.replace(qpos=other.qpos + 1.0)
    before = run(first)
    run(run(other))
    jax.tree.map(np.testing.assert_array_equal, before, run(first))


@on_every_engine
def test_an_engine_is_a_jit_argument_and_compiles_once(engine):
    world = loaded(CART, engine)
    traces = []

    @jax.jit
    def run(world, data):
        traces.append(1)
        return push(world, data)

    data = world.place(jnp.zeros(1), jnp.zeros(1))
    for _ in range(3):
        data = run(world, data)
    assert len(traces) == 1


@on_every_engine
def test_a_broken_world_stays_broken_and_touches_no_other(engine):
    """C MuJoCo would reset a bad world by itself; here it must show, so that it can be counted."""
    world = loaded(CART, engine)
    clean = starts(world, 4)
    poison = jax.vmap(lambda v: world.place(jnp.zeros(1), v))(jnp.array([[0.0], [1.0], [jnp.nan], [3.0]]))
    run = jax.jit(jax.vmap(lambda data: push(world, push(world, data))))
    expected, found = run(clean), run(poison)
    assert bool(jnp.all(jnp.isnan(found.qvel[2])))
    healthy = np.array([0, 1, 3])
    for name in ("qpos", "qvel", "xpos", "sensordata"):
        np.testing.assert_array_equal(getattr(found, name)[healthy], getattr(expected, name)[healthy])


@on_every_engine
def test_a_broken_world_prints_nothing(engine, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world = loaded(CART, engine)
    data = world.place(jnp.zeros(1), jnp.array([jnp.inf]))
    jax.block_until_ready(jax.jit(lambda data: push(world, push(world, data)))(data))
    printed = capfd.readouterr()
    assert "WARNING" not in printed.out + printed.err
    assert not list(tmp_path.iterdir())  # nor a MUJOCO_LOG.TXT
