"""What every engine promises under jit, vmap and scan, and what happens to a broken world. Axes: B worlds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scenes import CART, loaded, on_every_engine

B = 6


def push(world, data):
    return world.advance(data, jnp.array([1.0, 0.5]), 2)


@functools.cache
def compiled(engine):
    """(place, push) of B worlds, compiled once for all tests."""
    world = loaded(CART, engine)
    return jax.jit(jax.vmap(functools.partial(world.place, jnp.zeros(1)))), jax.jit(jax.vmap(lambda d: push(world, d)))


def starts(engine, broken=None):
    """B worlds at 0, 1, 2... m/s, the third at `broken` if given."""
    qvel = jnp.arange(B, dtype=jnp.float32)
    return compiled(engine)[0]((qvel if broken is None else qvel.at[2].set(broken))[:, None])


@on_every_engine
def test_a_row_of_a_batch_is_the_single_world(engine):
    world = loaded(CART, engine)
    batch = compiled(engine)[1](starts(engine))

    def alone(qvel):
        return push(world, world.place(jnp.zeros(1), qvel))

    alone = jax.jit(alone) if engine == "jax" else alone  # one by one, MJX's operations take minutes to compile
    jax.tree.map(
        lambda row, one: np.testing.assert_allclose(row[3], one, rtol=1e-6, atol=1e-6), batch, alone(jnp.array([3.0]))
    )


@on_every_engine
def test_nested_vmap_is_one_flat_batch(engine):
    world = loaded(CART, engine)
    flat = starts(engine)
    nested = jax.tree.map(lambda x: x.reshape(2, 3, *x.shape[1:]), flat)
    twice = jax.jit(jax.vmap(jax.vmap(lambda data: push(world, data))))(nested)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b.reshape(a.shape)), compiled(engine)[1](flat), twice)


@on_every_engine
def test_a_control_shared_by_all_worlds_needs_no_axis(engine):
    world = loaded(CART, engine)
    advance = jax.jit(jax.vmap(lambda d, c: world.advance(d, c, 2), in_axes=(0, None)))
    shared = advance(starts(engine), jnp.array([1.0, 0.5]))
    own = jax.jit(jax.vmap(lambda d, c: world.advance(d, c, 2)))(
        starts(engine), jnp.tile(jnp.array([1.0, 0.5]), (B, 1))
    )
    np.testing.assert_array_equal(shared.qpos, own.qpos)


@on_every_engine
def test_advance_is_a_pure_function(engine):
    """The same argument gives the same bits, whatever ran in between in the engine's own memory."""
    run, first = compiled(engine)[1], starts(engine)
    before = run(first)
    run(run(first.replace(qpos=first.qpos + 1.0)))
    jax.tree.map(np.testing.assert_array_equal, before, run(first))


@on_every_engine
def test_an_engine_is_a_jit_argument_and_compiles_once(engine):
    traces = []

    @jax.jit
    def run(world, data):
        traces.append(1)
        return jax.vmap(lambda data: push(world, data))(data)

    data = starts(engine)
    for _ in range(3):
        data = run(loaded(CART, engine), data)
    assert len(traces) == 1


@on_every_engine
def test_a_broken_world_stays_broken_and_touches_no_other(engine):
    """C MuJoCo would reset a bad world by itself; here it must show, so that it can be counted."""
    run = compiled(engine)[1]
    expected, found = run(run(starts(engine))), run(run(starts(engine, broken=jnp.nan)))
    assert bool(jnp.all(jnp.isnan(found.qvel[2])))
    healthy = np.arange(B) != 2
    for name in ("qpos", "qvel", "xpos", "sensordata"):
        np.testing.assert_array_equal(getattr(found, name)[healthy], getattr(expected, name)[healthy])


@on_every_engine
def test_a_broken_world_prints_nothing(engine, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = compiled(engine)[1]
    jax.block_until_ready(run(run(starts(engine, broken=jnp.inf))))
    printed = capfd.readouterr()
    assert "WARNING" not in printed.out + printed.err
    assert not list(tmp_path.iterdir())  # nor a MUJOCO_LOG.TXT
