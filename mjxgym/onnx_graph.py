"""A traced function -> an ONNX model. Knows the operations of policy networks: dense layers, activations, LSTM, GRU.

What does not depend on the inputs is computed here and becomes an initializer. The batch axis is symbolic in the trace
and a named, dynamic axis in the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import onnx
from jax.extend import core
from onnx import helper, numpy_helper

from mjxgym.strict import UserError

# Old on purpose: onnxruntime 1.12 (2022) and everything later reads it.
OPSET, IR_VERSION = 17, 8
DTYPES = ("float32", "int32", "bool")

Equation = Any  # core.JaxprEqn; JAX gives its variables a type without shape and dtype
Shape = tuple[Any, ...]  # whole numbers, and symbols that contain the batch


@dataclasses.dataclass(frozen=True)
class Value:
    """A value on its way through the graph: an `array` if it is known already, otherwise what a node or input gives."""

    shape: Shape  # as JAX sees it
    # As ONNX sees it: an axis along which the value only repeats may be 1, or missing at the front. ONNX's elementwise
    # operations repeat by themselves, so that most graphs never ask how large the batch is.
    stored: Shape
    name: str  # of a known array: what to call it, "" if it has no name of its own
    array: np.ndarray | None = None


class Graph:
    """Nodes and initializers as they come."""

    def __init__(self, first_input: str, batch: Any) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, np.ndarray] = {}
        self._first_input, self._batch = first_input, batch
        self._constants: dict[tuple[str, str, Shape, bytes], str] = {}

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        """A node; the names of its outputs."""
        stem = f"{op.lower()}_{len(self.nodes)}"
        names = [stem] if outputs == 1 else [f"{stem}_{part}" for part in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=stem, **attributes))
        return names

    def constant(self, array: Any, name: str = "") -> str:
        """The name of an initializer; equal ones of one name are one."""
        array = np.asarray(array)
        key = (name, str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            free = name or "constant_0"
            while free in self.initializers:
                free = f"{name or 'constant'}_{len(self.initializers)}"
            self._constants[key] = free
            self.initializers[free] = array
        return self._constants[key]

    def use(self, value: Value) -> str:
        """The name under which a node may read `value` in its stored shape."""
        return value.name if value.array is None else self.constant(value.array, value.name)

    def whole(self, value: Value) -> Value:
        """`value` stored in its full shape, for operations that do not repeat by themselves."""
        if value.stored == value.shape:
            return value
        # Expand repeats too, so an axis that is there already is asked for as 1.
        stored = (1,) * (len(value.shape) - len(value.stored)) + value.stored
        sizes = [1 if have == want else want for have, want in zip(stored, value.shape, strict=True)]
        if all(isinstance(size, int) for size in sizes):
            shape = self.constant(np.array(sizes, np.int64))
        else:
            [batch] = self.add("Shape", [self._first_input], start=0, end=1)
            parts = [self.constant(np.array([size], np.int64)) if isinstance(size, int) else batch for size in sizes]
            if any(not isinstance(size, int) and size != self._batch for size in sizes):
                raise UserError(
                    f"the network repeats a value to {value.shape}; export to ONNX knows the plain batch only"
                )
            [shape] = self.add("Concat", parts, axis=0)
        [name] = self.add("Expand", [self.use(value), shape])
        return Value(value.shape, value.shape, name)

    def reshaped(self, value: Value, shape: Shape, stored: Shape) -> Value:
        """The stored elements in another shape."""
        if value.stored == stored:
            return dataclasses.replace(value, shape=shape)
        if value.array is not None:
            return Value(shape, stored, value.name, value.array.reshape(stored))
        sizes = [size if isinstance(size, int) else -1 for size in stored]
        [name] = self.add("Reshape", [value.name, self.constant(np.array(sizes, np.int64))])
        return Value(shape, stored, name)


def model(
    closed: core.ClosedJaxpr, constants: Mapping[str, np.ndarray], inputs: Sequence[str], outputs: Sequence[str],
    metadata: Mapping[str, str],
) -> onnx.ModelProto:  # fmt: skip
    """A function traced with the arguments (*constants, *inputs), each input [batch, ...] with one symbol for batch.

    Raises UserError for an operation that has no translation here.
    """
    given: list[Any] = closed.in_avals[len(constants) :]
    graph = Graph(inputs[0], given[0].shape[0])
    known = [Value(array.shape, array.shape, name, array) for name, array in constants.items()]
    known += [Value(aval.shape, aval.shape, name) for name, aval in zip(inputs, given, strict=True)]
    results = translate(graph, closed, known)
    for value, name in zip(results, outputs, strict=True):
        graph.nodes.append(helper.make_node("Identity", [graph.use(graph.whole(value))], [name], name=name))
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "policy",
            inputs=[info(name, aval) for name, aval in zip(inputs, given, strict=True)],
            outputs=[info(name, aval) for name, aval in zip(outputs, closed.out_avals, strict=True)],
            initializer=[numpy_helper.from_array(array, name) for name, array in graph.initializers.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="mjxgym",
    )
    helper.set_model_props(made, dict(metadata))
    onnx.checker.check_model(made, full_check=True)
    return made


def info(name: str, aval: Any) -> onnx.ValueInfoProto:
    """Name, type and shape; a symbol's own name becomes the axis' name."""
    shape = [size if isinstance(size, int) else str(size) for size in aval.shape]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(aval.dtype)), shape)


def translate(graph: Graph, closed: core.ClosedJaxpr, operands: Sequence[Value]) -> list[Value]:
    """Add what `closed` computes from `operands` to the graph; its results."""
    jaxpr = closed.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*map(literal, closed.consts), *operands], strict=True))

    def read(atom: Any) -> Value:
        return known[atom] if isinstance(atom, core.Var) else literal(np.asarray(atom.val, atom.aval.dtype))

    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, apply(graph, eqn, [read(atom) for atom in eqn.invars]), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def literal(given: Any) -> Value:
    """An array that stands in the traced function itself."""
    array = np.asarray(given)
    return Value(array.shape, array.shape, "", array)


def apply(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """One operation: the inside of a call, computed now if all is known, or by its rule."""
    name = eqn.primitive.name
    if name in CALLS:
        return translate(graph, eqn.params[CALLS[name]], operands)
    if name in ALIASES:
        return operands
    static = all(isinstance(size, int) for var in eqn.outvars for size in var.aval.shape)
    arrays = [value.array for value in operands if value.array is not None and value.stored == value.shape]
    if static and len(arrays) == len(operands):
        results = eqn.primitive.bind(*map(jax.numpy.asarray, arrays), **eqn.params)
        results = results if eqn.primitive.multiple_results else [results]
        kept = operands[0].name if name in SAME_ELEMENTS else ""
        return [Value(result.shape, result.shape, kept, np.asarray(result)) for result in results]
    if name not in RULES or any(str(var.aval.dtype) not in DTYPES for var in eqn.outvars):
        raise unknown(eqn)
    return RULES[name](graph, eqn, operands)


def unknown(eqn: Equation) -> UserError:
    """The sentence for an operation without a rule."""
    kinds = ", ".join(str(var.aval) for var in eqn.invars)
    return UserError(
        f"the network computes {eqn.primitive.name}({kinds}), which mjxgym/onnx_graph.py cannot say in ONNX; "
        "add a rule there, or use out=policy.stablehlo, which takes any network"
    )


Rule = Callable[[Graph, Equation, list[Value]], list[Value]]

# Operations that stand for a function of their own, and where it is.
CALLS = {"jit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
ALIASES = ("copy",)
SAME_ELEMENTS = ("reshape", "broadcast_in_dim", "squeeze")


def pointwise(write: Callable[..., str]) -> Rule:
    """`write(op, *names)` -> name, for elementwise operations; `op` adds a node."""

    def rule(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
        def op(kind: str, *inputs: str | float, **attributes: Any) -> str:
            names = [one if isinstance(one, str) else graph.constant(np.float32(one)) for one in inputs]
            return graph.add(kind, names, **attributes)[0]

        name = write(op, *map(graph.use, operands), **eqn.params)
        return [Value(eqn.outvars[0].aval.shape, together(*(value.stored for value in operands)), name)]

    return rule


def same(kind: str) -> Rule:
    """An elementwise operation that ONNX has too, called `kind`."""
    return pointwise(lambda op, *names, **_: op(kind, *names))


def logical(kind: str) -> Rule:
    """The same for truth values; on whole numbers JAX's operation is one of bits, which is another."""

    def rule(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
        if any(var.aval.dtype != bool for var in eqn.outvars):
            raise unknown(eqn)
        return same(kind)(graph, eqn, operands)

    return rule


def together(*shapes: Shape) -> Shape:
    """The shape of elementwise operands that repeat along axes of length 1 and missing ones."""
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return tuple(next((size for size in column if size != 1), 1) for column in columns)


def select(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """`select_n(which, if_false, if_true)`."""
    if len(operands) != 3 or eqn.invars[0].aval.dtype != bool:
        raise unknown(eqn)
    return pointwise(lambda op, which, no, yes, **_: op("Where", which, yes, no))(graph, eqn, operands)


def convert(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """Another dtype."""
    if eqn.invars[0].aval.dtype == eqn.outvars[0].aval.dtype:
        return operands
    to = helper.np_dtype_to_tensor_dtype(np.dtype(eqn.outvars[0].aval.dtype))
    return pointwise(lambda op, x, **_: op("Cast", x, to=to))(graph, eqn, operands)


def broadcast(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """Only the axes are put in place; whoever needs the repetition itself asks for the `whole`."""
    [value], shape = operands, eqn.params["shape"]
    padded = (1,) * (len(value.shape) - len(value.stored)) + value.stored
    stored = [1] * len(shape)
    for axis, size in zip(eqn.params["broadcast_dimensions"], padded, strict=True):
        stored[axis] = size
    return [graph.reshaped(value, shape, tuple(stored))]


def reshape(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """Another shape of the same elements, in order."""
    shape = eqn.outvars[0].aval.shape
    if eqn.params.get("dimensions") is not None or sum(not isinstance(size, int) for size in shape) > 1:
        raise unknown(eqn)
    return [graph.reshaped(graph.whole(operands[0]), shape, shape)]


def transpose(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """Axes in another order."""
    return node(graph, eqn, "Transpose", operands, perm=eqn.params["permutation"])


def concatenate(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """Side by side along an axis."""
    return node(graph, eqn, "Concat", operands, axis=eqn.params["dimension"])


def split(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """Cut along an axis into parts of given sizes."""
    sizes = np.array(eqn.params["sizes"], np.int64)
    if len(sizes) == 1:
        return operands
    return node(graph, eqn, "Split", [*operands, literal(sizes)], axis=eqn.params["axis"])


def cut(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """`slice`: a range of some axes, all of the others."""
    starts, ends, strides = (eqn.params[name] for name in ("start_indices", "limit_indices", "strides"))
    axes = [axis for axis, size in enumerate(operands[0].shape) if (starts[axis], ends[axis]) != (0, size)]
    if set(strides or [1]) != {1} or any(not isinstance(ends[axis], int) for axis in axes):
        raise unknown(eqn)
    ranges = [[starts[axis] for axis in axes], [ends[axis] for axis in axes], axes]
    return node(graph, eqn, "Slice", [*operands, *(literal(np.array(part, np.int64)) for part in ranges)])


def reduce_sum(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """The sum over some axes, which vanish."""
    axes = np.array(eqn.params["axes"], np.int64)
    return node(graph, eqn, "ReduceSum", [*operands, literal(axes)], keepdims=0)


def matmul(graph: Graph, eqn: Equation, operands: list[Value]) -> list[Value]:
    """`dot_general` where it is a dense layer: the last axis of [..., k] with the first of [k, n]."""
    if eqn.params["dimension_numbers"] != (((len(operands[0].shape) - 1,), (0,)), ((), ())):
        raise unknown(eqn)
    if len(operands[1].shape) != 2:
        raise unknown(eqn)
    return node(graph, eqn, "MatMul", operands)


def node(graph: Graph, eqn: Equation, op: str, operands: list[Value], **attributes: Any) -> list[Value]:
    """One ONNX operation on whole operands."""
    names = graph.add(op, [graph.use(graph.whole(value)) for value in operands], len(eqn.outvars), **attributes)
    shapes = [var.aval.shape for var in eqn.outvars]
    return [Value(shape, shape, name) for shape, name in zip(shapes, names, strict=True)]


RULES: dict[str, Rule] = {
    "add": same("Add"),
    "sub": same("Sub"),
    "mul": same("Mul"),
    "div": same("Div"),
    "max": same("Max"),
    "min": same("Min"),
    "pow": same("Pow"),
    "neg": same("Neg"),
    "abs": same("Abs"),
    "sign": same("Sign"),
    "exp": same("Exp"),
    "log": same("Log"),
    "sqrt": same("Sqrt"),
    "tanh": same("Tanh"),
    "logistic": same("Sigmoid"),
    "erf": same("Erf"),
    "gt": same("Greater"),
    "ge": same("GreaterOrEqual"),
    "lt": same("Less"),
    "le": same("LessOrEqual"),
    "eq": same("Equal"),
    "ne": pointwise(lambda op, x, y: op("Not", op("Equal", x, y))),
    "and": logical("And"),
    "or": logical("Or"),
    "not": logical("Not"),
    "square": pointwise(lambda op, x: op("Mul", x, x)),
    "integer_pow": pointwise(lambda op, x, y: op("Pow", x, float(y))),
    "rsqrt": pointwise(lambda op, x, **_: op("Reciprocal", op("Sqrt", x))),
    # These two lose relative accuracy near 0, where they exist for it: an error of 1e-7 in absolute terms.
    "expm1": pointwise(lambda op, x, **_: op("Sub", op("Exp", x), 1.0)),
    "log1p": pointwise(lambda op, x, **_: op("Log", op("Add", x, 1.0))),
    "clamp": pointwise(lambda op, low, x, high: op("Min", op("Max", x, low), high)),
    "select_n": select,
    "convert_element_type": convert,
    "broadcast_in_dim": broadcast,
    "reshape": reshape,
    "squeeze": reshape,
    "transpose": transpose,
    "concatenate": concatenate,
    "split": split,
    "slice": cut,
    "reduce_sum": reduce_sum,
    "dot_general": matmul,
}
