"""Derivatives through a control step: on engine jax against finite differences, elsewhere refused in a sentence."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scenes import CART, loaded

from mjxgym.physics.derivatives import refuse, refuse_reverse

# A ball that is pressed into a floor, slides on it and has a motor along x.
BALL = """
<mujoco>
  <option timestep="0.005" iterations="{iterations}" ls_iterations="20"/>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body name="ball" pos="0 0 0.095"><freejoint name="root"/><geom size="0.1" mass="1"/></body>
  </worldbody>
  <actuator><motor joint="root" gear="1 0 0 0 0 0"/></actuator>
</mujoco>
"""
SCENES = {
    "free": CART,
    "limited": CART.replace(
        "damping", 'range="-1 1" limited="true" damping'
    ),  # a constraint; 100 iterations by default
    "one iteration": BALL.format(iterations=1),
    "several": BALL.format(iterations=20),
}
SUBSTEPS = 2
# float32 has 1e-7 of a cost of about 3: divided by 6e-3, 1e-4. Larger shifts would lift the ball off the floor.
EPSILON = 3e-3
close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)
modes = pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd], ids=["reverse", "forward"])


def setting(world: Any) -> Array:
    """[nv + nu] velocities before the step, controls during it."""
    return jnp.linspace(-0.2, 0.3, world.names.nv + world.names.nu)


def step(world: Any, values: Array) -> Any:
    """One control step from the model's initial position."""
    qvel, ctrl = values[: world.names.nv], values[world.names.nv :]
    return world.advance(world.place(jnp.asarray(world.names.qpos0), qvel), ctrl, SUBSTEPS)


def cost(world: Any, values: Array) -> Array:
    """Of one control step: how far it leads from a target, and how fast."""
    after = step(world, values)
    return 10.0 * jnp.sum(jnp.square(after.qpos - 0.1)) + 0.1 * jnp.sum(jnp.square(after.qvel))


def several_steps(world: Any, values: Array) -> Array:
    """The same of three, scanned."""

    def one(data, _):
        data = world.advance(data, values[world.names.nv :], SUBSTEPS)
        return data, jnp.sum(jnp.square(data.qvel))

    start = world.place(jnp.asarray(world.names.qpos0), values[: world.names.nv])
    return 0.1 * jnp.sum(jax.lax.scan(one, start, None, 3)[1])


def differences(function: Callable[[Array], Array], at: Array) -> np.ndarray:
    """The gradient by central differences."""
    shifts = EPSILON * jnp.concatenate([jnp.eye(len(at)), -jnp.eye(len(at))])
    up, down = jnp.split(jax.jit(jax.vmap(function))(at[None] + shifts), 2)
    return np.asarray(up - down) / (2.0 * EPSILON)


def on(scene: str, engine: str = "jax", function: Callable[..., Array] = cost) -> tuple[Callable[..., Array], Array]:
    """(a cost, where to ask for its derivative)."""
    world = loaded(SCENES[scene], engine)
    return functools.partial(function, world), setting(world)


@pytest.mark.parametrize("scene", ["free", "several"])
def test_forward_mode_equals_finite_differences(scene: str):
    world, (function, at) = loaded(SCENES[scene], "jax"), on(scene)
    found = jax.jit(jax.jacfwd(function))(at)
    close(found, differences(function, at))
    assert np.max(np.abs(found)) > 0.05
    assert np.max(np.abs(found[world.names.nv :])) > 3e-3  # controls matter


@pytest.mark.parametrize("scene", ["free", "one iteration"])
def test_reverse_mode_equals_finite_differences(scene: str):
    function, at = on(scene)
    close(jax.jit(jax.grad(function))(at), differences(function, at))


def test_a_derivative_passes_scan_and_vmap():
    function, at = on("free", function=several_steps)
    batch = jnp.stack([at, 2.0 * at, -at])
    found = jax.jit(jax.vmap(jax.grad(function)))(batch)
    shifts = EPSILON * jnp.concatenate([jnp.eye(len(at)), -jnp.eye(len(at))])
    up, down = jnp.split(jax.jit(jax.vmap(jax.vmap(function)))(batch[:, None] + shifts[None]), 2, axis=1)
    close(found, (up - down) / (2.0 * EPSILON))
    assert np.ptp(np.asarray(found), axis=0).max() > 0.1


def test_reverse_mode_over_several_iterations_is_refused_in_one_sentence():
    function, at = on("limited")
    with pytest.raises(NotImplementedError) as raised:
        jax.eval_shape(jax.grad(function), at)
    said = str(raised.value)
    assert "\n" not in said
    for part in ("engine=jax", 'iterations="100"', '<option iterations="1"/>', "jax.jacfwd", "jax.lax.stop_gradient"):
        assert part in said


@pytest.mark.parametrize("engine", ["c", "warp"])
@modes
def test_an_engine_without_derivatives_says_so(engine: str, derivative: Any):
    function, at = on("free", engine)
    with pytest.raises(
        NotImplementedError, match=rf"^engine={engine} has no derivatives.*use engine=jax.*stop_gradient"
    ):
        jax.eval_shape(derivative(function), at)


@pytest.mark.parametrize(("engine", "scene"), [("c", "free"), ("warp", "free"), ("jax", "limited")])
def test_jit_vmap_and_scan_hide_no_refusal(engine: str, scene: str):
    function, at = on(scene, engine, several_steps)
    for asked in (
        lambda at: jax.jit(jax.vmap(jax.grad(jax.jit(function))))(jnp.stack([at, at])),
        jax.grad(lambda at: jnp.sum(jax.vmap(jax.checkpoint(function))(jnp.stack([at, at])))),
    ):
        with pytest.raises(NotImplementedError, match=f"engine={engine}"):
            jax.eval_shape(asked, at)


@pytest.mark.parametrize("engine", ["c", "warp"])
@modes
def test_every_input_of_an_engine_without_derivatives_refuses(engine: str, derivative: Any):
    world = loaded(CART, engine)
    start = {"qpos": jnp.zeros(1), "qvel": jnp.ones(1), "ctrl": jnp.ones(2), "act": jnp.ones(1)}
    forces = {"ctrl": jnp.ones(2), "qfrc_applied": jnp.ones(1), "xfrc_applied": jnp.ones((3, 6))}
    data = jax.eval_shape(lambda: world.place(**start))

    def placed(name, value):
        return world.place(**start | {name: value}).qpos[0]

    def advanced(name, value, data):
        return world.advance(data, substeps=SUBSTEPS, **forces | {name: value}).qpos[0]

    for name, value in start.items():
        with pytest.raises(NotImplementedError, match=f"engine={engine}"):
            jax.eval_shape(derivative(functools.partial(placed, name)), value)
    for name, value in forces.items():
        with pytest.raises(NotImplementedError, match=f"engine={engine}"):
            jax.eval_shape(derivative(functools.partial(advanced, name)), value, data)


@pytest.mark.parametrize(("engine", "scene"), [("c", "free"), ("warp", "free"), ("jax", "limited")])
def test_stop_gradient_avoids_the_refusal(engine: str, scene: str):
    world = loaded(SCENES[scene], engine)
    at = setting(world)

    def weighted(weight):  # its derivative is the rest
        speed = jnp.sum(step(world, jax.lax.stop_gradient(weight * at)).qvel)
        return weight * speed, speed

    found, speed = jax.jit(jax.grad(weighted, has_aux=True))(1.0)
    np.testing.assert_allclose(found, speed, rtol=1e-6)


@pytest.mark.parametrize(("engine", "scene"), [("c", "free"), ("warp", "free"), ("jax", "limited")])
@modes
def test_a_derivative_that_does_not_come_to_the_engine_is_not_refused(engine: str, scene: str, derivative: Any):
    world = loaded(SCENES[scene], engine)

    def weighted(weight):
        return jnp.sum(jnp.square(weight * step(world, setting(world)).qvel))

    assert jax.eval_shape(derivative(weighted), 3.0).shape == ()


def test_refusals_vanish_when_a_program_is_compiled():
    def program(through: Callable[[Array], Array]) -> str:
        def function(values):
            return jnp.sin(through(jnp.cos(values)))

        compiled = jax.jit(jax.vmap(function)).lower(jnp.ones((3, 2))).compile().as_text()
        return re.sub(r", metadata=\{[^}]*\}", "", compiled).partition("ENTRY")[2].partition("FileNames")[0]

    plain = program(lambda values: values)
    assert "cosine" in plain or "fusion" in plain
    assert program(functools.partial(refuse, "no")) == plain
    assert program(functools.partial(refuse_reverse, "no")) == plain


def test_a_refusal_gives_back_what_it_is_given():
    values = {"a": jnp.arange(3.0), "b": jnp.arange(3), "c": jnp.ones(2, bool), "none": ()}
    for function in (refuse, refuse_reverse):
        for found in (function("no", values), jax.jit(functools.partial(function, "no"))(values)):
            jax.tree.map(np.testing.assert_array_equal, found, values)
            assert jax.tree.map(lambda leaf: leaf.dtype, found) == jax.tree.map(lambda leaf: leaf.dtype, values)


def test_forward_mode_passes_where_only_reverse_is_refused():
    tangent = jax.jvp(lambda x: refuse_reverse("no", x) ** 2, (3.0 * jnp.ones(()),), (jnp.ones(()),))[1]
    assert tangent == 6.0
    with pytest.raises(NotImplementedError, match="no"):
        jax.grad(lambda x: refuse_reverse("no", x) ** 2)(3.0)
    with pytest.raises(NotImplementedError, match="no"):
        jax.jvp(lambda x: refuse("no", x), (3.0,), (1.0,))
