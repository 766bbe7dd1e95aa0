"""`over_worlds`: a function of whole batches, usable on one world and under any nesting of vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

# What JAX traces is this primitive; `batched` itself is called when a program is lowered, with the final number of
# worlds. So whatever it prepares for a size (memory, kernels) is prepared for sizes that run, and for no others.
_worlds = Primitive("worlds")
_worlds.multiple_results = True


def over_worlds(
    batched: Callable[..., Sequence[Array]], result: tuple[jax.ShapeDtypeStruct, ...], arrays: Sequence[Array]
) -> list[Array]:
    """Call `batched`, which maps arrays [N, ...] to arrays [N, ...], from code for one world; vmap adds N.

    `result` is what comes back for one world. Whatever the nesting, `batched` sees all worlds in one axis: a kernel
    launch for 4096 worlds costs what one for a single world does. It must be hashable; equal ones compile once.
    """
    found = _worlds.bind(*(array[None] for array in arrays), batched=batched, result=result)
    return [array[0] for array in found]


@_worlds.def_impl
def _run(*arrays: Array, batched: Callable[..., Sequence[Array]], result: Any) -> list[Array]:
    return jax.jit(lambda *arrays: list(batched(*arrays)))(*arrays)


@_worlds.def_abstract_eval
def _shapes(*arrays: Any, batched: Any, result: tuple[jax.ShapeDtypeStruct, ...]) -> list[ShapedArray]:
    return [ShapedArray((arrays[0].shape[0], *one.shape), one.dtype) for one in result]


def _under_vmap(arrays: Sequence[Array], axes: Sequence[Any], **params: Any) -> tuple[list[Array], list[int]]:
    size = next(a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None)

    def spread(array: Array, axis: Any) -> Array:
        """[size, n, ...], each world's own."""
        if axis is None:
            return jnp.broadcast_to(array[None], (size, *array.shape))
        return jnp.moveaxis(array, axis, 0)

    full = [spread(array, axis) for array, axis in zip(arrays, axes, strict=True)]
    inner = full[0].shape[1]
    found = _worlds.bind(*(array.reshape(size * inner, *array.shape[2:]) for array in full), **params)
    return [array.reshape(size, inner, *array.shape[1:]) for array in found], [0] * len(found)


batching.primitive_batchers[_worlds] = _under_vmap
mlir.register_lowering(
    _worlds, mlir.lower_fun(lambda *arrays, batched, result: list(batched(*arrays)), multiple_results=True)
)
