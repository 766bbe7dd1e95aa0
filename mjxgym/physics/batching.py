"""`over_worlds`: a function of whole batches, usable on one world and under any nesting of vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap

Arrays = tuple[Array, ...]


def over_worlds(batched: Callable[..., Arrays]) -> Callable[..., Arrays]:
    """`batched` maps arrays [N, ...] to arrays [N, ...]; the result maps arrays without N, and vmap adds it.

    Whatever the nesting, `batched` is called once with all worlds in one axis: a kernel launch for 4096 worlds
    costs what one for a single world does.
    """

    @custom_vmap
    def call(*arrays: Array) -> Arrays:
        return batched(*arrays)

    @call.def_vmap
    def _(size: int, in_batched: list[bool], *arrays: Array) -> tuple[Arrays, Any]:
        full = [
            array if has_axis else jnp.broadcast_to(array, (size, *array.shape))
            for array, has_axis in zip(arrays, in_batched, strict=True)
        ]
        inner = full[0].shape[1]  # each argument is [size, inner, ...]
        result = call(*(array.reshape(size * inner, *array.shape[2:]) for array in full))
        split = tuple(array.reshape(size, inner, *array.shape[1:]) for array in result)
        return split, jax.tree.map(lambda _: True, split)

    def single(*arrays: Array) -> Arrays:
        return tuple(array[0] for array in call(*(array[None] for array in arrays)))

    return single
