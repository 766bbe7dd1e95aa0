"""A traced function as an ONNX graph: every rule against JAX, at several batch sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import export

from mjxgym import onnx_graph
from mjxgym.ppo.config import ACTIVATIONS
from mjxgym.strict import UserError

ROWS = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)


def convert(function: Callable[..., Any], *sizes: int, **constants: np.ndarray) -> onnx.ModelProto:
    """`function(*constants, *inputs)`, inputs [batch, size]."""
    (batch,) = export.symbolic_shape("batch")
    inputs = [jax.ShapeDtypeStruct((batch, size), jnp.float32) for size in sizes]
    closed = jax.make_jaxpr(function)(*constants.values(), *inputs)
    names = [[f"{side}_{i}" for i in range(len(avals))] for side, avals in (("in", inputs), ("out", closed.out_avals))]
    return onnx_graph.model(closed, constants, *names, {"about": "a test"})


def outputs(model: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: array for one, array in zip(session.get_inputs(), arrays, strict=True)})


def agrees(function: Callable[[Any], Any], rows: np.ndarray = ROWS) -> onnx.ModelProto:
    """The graph of a function of one input says what JAX says, in batches of 1, 2 and all rows."""
    model = convert(function, rows.shape[1])
    for size in (1, 2, len(rows)):
        [found], expected = outputs(model, rows[:size]), function(jnp.asarray(rows[:size]))
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
    return model


def ops(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


WEIGHT = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
LAYER_NORM = nn.LayerNorm().init(jax.random.key(0), ROWS[0])


@jax.custom_vjp
def doubled(x):
    return 2.0 * x


doubled.defvjp(lambda x: (2.0 * x, None), lambda _, g: (g,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1.5,
        lambda x: 2.0 - x,
        lambda x: x * x,
        lambda x: 1.0 / (3.0 + jnp.abs(x)),
        lambda x: -jnp.sign(x),
        lambda x: jnp.maximum(x, 0.5) + jnp.minimum(x, -0.5),
        lambda x: jnp.exp(x) + jnp.expm1(x),
        lambda x: jnp.log(jnp.square(x) + 0.1) + jnp.log1p(jnp.square(x)),
        lambda x: jnp.sqrt(jnp.abs(x)) + jax.lax.rsqrt(1.0 + jnp.abs(x)),
        lambda x: jnp.power(jnp.abs(x), 1.7),
        lambda x: x**3 + x**-2,
        lambda x: jax.lax.erf(x) + jnp.tanh(x) + jax.lax.logistic(x),
        lambda x: jax.lax.clamp(-0.5, x, 0.5),
        lambda x: jnp.where((x > 0.0) & (x <= 1.0) | ~(x >= -1.0), x, 0.25),
        lambda x: jnp.where(jnp.isnan(x), 0.0, x),
        lambda x: jnp.where((x < 0.3) == (x != ROWS[0, 0]), 1.0, -1.0),
        lambda x: (x > 0.0).astype(jnp.float32) + (x > 1.0).astype(jnp.int32),
        lambda x: jnp.split(x, [2, 3], axis=-1)[0] + jnp.split(x, 3, axis=-1)[1],
        lambda x: jnp.concatenate([x, 2.0 * x], axis=-1),
        lambda x: jax.lax.slice_in_dim(x, 1, 5, axis=1),
        lambda x: x.reshape(-1, 2, 3).swapaxes(1, 2).reshape(-1, 6),
        lambda x: jnp.sum(x, axis=-1, keepdims=True) * x,
        lambda x: x @ WEIGHT,
        lambda x: x.reshape(-1, 2, 3) @ WEIGHT[:3],
        lambda x: jnp.array(x),
        lambda x: doubled(x),
        lambda x: jax.jit(lambda y: jax.jit(jnp.tanh)(y) + 1.0)(x),
        lambda x: nn.LayerNorm().apply(LAYER_NORM, x),
        lambda x: x,
    ],
)
def test_an_operation_says_what_jax_says(function):
    agrees(function)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_says_what_jax_says_and_never_asks_for_the_batch_size(name):
    model = agrees(getattr(nn, name), np.concatenate([ROWS, 30.0 * ROWS]))
    assert not ops(model) & {"Shape", "Expand"}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.zeros(x.shape),
        lambda x: jnp.broadcast_to(WEIGHT[:1], (x.shape[0], 4)),
        lambda x: jnp.concatenate([x, jnp.full((x.shape[0], 2), 3.0)], axis=-1),
        lambda x: jnp.broadcast_to(x[:, None, :], (x.shape[0], 3, 6)).reshape(-1, 18),
        lambda x: jnp.zeros((x.shape[0], 6)) @ WEIGHT + 1.0,
    ],
)
def test_what_repeats_along_the_batch_has_its_size(function):
    agrees(function)


@pytest.mark.parametrize(
    "cell", [nn.LSTMCell(5), nn.OptimizedLSTMCell(5), nn.GRUCell(5), nn.MGUCell(5), nn.SimpleCell(5)]
)
def test_a_recurrent_cell_says_what_jax_says(cell):
    carry = cell.initialize_carry(jax.random.key(0), (6,))
    params = cell.init(jax.random.key(1), carry, ROWS[0])
    leaves, structure = jax.tree.flatten(carry)

    def step(obs, *carry):
        carry, out = cell.apply(params, jax.tree.unflatten(structure, carry), obs)
        return out, *jax.tree.leaves(carry)

    model = convert(step, 6, *(5 for _ in leaves))
    memory = [ROWS[:, :5] for _ in leaves]
    for found, expected in zip(outputs(model, ROWS, *memory), step(ROWS, *memory), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_does_not_depend_on_the_input_is_computed_beforehand():
    def function(scale, bias, x):
        return x * jax.lax.rsqrt(scale + 1.0)[None] + bias.reshape(1, 6)

    model = convert(function, 6, scale=ROWS[0] ** 2, bias=ROWS[1])
    assert [node.op_type for node in model.graph.node] == ["Mul", "Add", "Identity"]
    initializers = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    np.testing.assert_array_equal(initializers["bias"], ROWS[1:2])  # its own name
    assert "scale" not in initializers  # the root is not the scale


def test_a_model_is_one_that_old_runtimes_read():
    model = convert(lambda x: (jnp.tanh(x), x), 6)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    shapes = [one.type.tensor_type.shape.dim for one in [*model.graph.input, *model.graph.output]]
    assert [[dim.dim_param or dim.dim_value for dim in shape] for shape in shapes] == [["batch", 6]] * 3
    assert [(one.key, one.value) for one in model.metadata_props] == [("about", "a test")]
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda x: jnp.sort(x), "sort"),
        (lambda x: jnp.einsum("bi,bi->b", x, x)[:, None], "dot_general"),
        (lambda x: jnp.einsum("bi,ijk->bjk", x, WEIGHT.reshape(6, 2, 2)), "dot_general"),
        (lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), "convert_element_type"),
        (lambda x: ((x > 0.0).astype(jnp.int32) & 1).astype(jnp.float32), "and"),
        (lambda x: jnp.tile(x, (2, 1)), "batch"),
    ],
)
def test_what_has_no_rule_is_one_sentence(function, part):
    with pytest.raises(UserError) as refused:
        convert(function, 6)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)
