"""Buffers of engine warp: sized by a probe, and counted by name when they are too small."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenes import BALLS, compiled

from mjxgym.physics import limits, sizes
from mjxgym.physics.names import Names
from mjxgym.physics.sizes import Sizes
from mjxgym.physics.warp import Host, Warp


def balls(room: Sizes) -> Warp:
    model = compiled(BALLS)
    return Warp(
        limits=limits.of_model(model), host=Host(model, room), names=Names(model, "balls"), sim_dt=model.opt.timestep
    )


def rested(world: Warp, num_worlds: int):
    qpos = jnp.asarray(world.names.qpos0)

    def run(offset):
        data = world.place(qpos.at[0].add(offset), jnp.zeros(world.names.nv))
        return world.advance(data, jnp.zeros(0), 50)

    return jax.jit(jax.vmap(run))(jnp.linspace(0.0, 0.1, num_worlds))


def test_a_probe_finds_every_contact_and_adds_headroom():
    found = sizes.probe(compiled(BALLS))
    assert 8 * 1.5 <= found.contacts <= 8 * 1.5 + 4
    assert found.constraints >= 8 * 4  # four pyramid edges a contact


def test_probed_sizes_hold_many_worlds_up():
    model = compiled(BALLS)
    data = rested(balls(sizes.probe(model)), 64)
    assert not any(bits.any() for bits in data.overflow)
    np.testing.assert_allclose(data.qpos[:, 2], 0.1, atol=5e-3)


@pytest.mark.parametrize(
    ("room", "names"),
    [
        (Sizes(contacts=2, constraints=64), {"narrowphase", "broadphase"}),
        (Sizes(contacts=16, constraints=16), {"constraints"}),
    ],
)
def test_too_small_a_buffer_is_named(room, names):
    data = rested(balls(room), 4)
    raised = {name for name, bits in data.overflow._asdict().items() if bits.any()}
    assert raised
    assert raised <= names


def test_overflow_is_of_this_step_only():
    """The engine's own bits are sticky; a count of world-steps must not be."""
    world = balls(Sizes(contacts=2, constraints=64))
    apart = jnp.asarray(world.names.qpos0).reshape(8, 7).at[:, 2].add(5.0).reshape(-1)
    crowded = rested(world, 4)
    assert crowded.overflow.narrowphase.all() or crowded.overflow.broadphase.all()
    free = jax.vmap(lambda _: world.advance(world.place(apart, jnp.zeros(world.names.nv)), jnp.zeros(0), 2))(
        jnp.arange(4)
    )
    assert not any(bits.any() for bits in free.overflow)


def test_bits_of_solver_iterations_are_no_overflow():
    assert not any(bool(bit) for bit in sizes.overflow_from_bits(jnp.int32(512 | 1024)))
    assert bool(sizes.overflow_from_bits(jnp.int32(1)).constraints)
