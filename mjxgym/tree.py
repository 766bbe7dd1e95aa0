"""`Record`: frozen dataclasses that JAX can carry; and many small arrays carried as one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self, dataclass_transform

import jax
import jax.numpy as jnp
from jax import Array


def static(**kwargs: Any) -> Any:
    """A field that is part of the type, not of the data: hashable, no arrays; a new value means a new compile."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
class Record:
    """Base of every record: a subclass becomes a frozen dataclass and a pytree; `static()` fields are its metadata."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        jax.tree_util.register_dataclass(
            cls,
            data_fields=[field.name for field in fields if not field.metadata.get("static")],
            meta_fields=[field.name for field in fields if field.metadata.get("static")],
        )

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; an unknown name is a TypeError."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


def pack(tree: Any, axes: int = 1) -> dict[str, Array]:
    """The leaves of each dtype side by side in one array, {dtype: [*lead, n]}; all share `axes` leading axes.

    A loop that carries, selects or stores many small leaves pays for each of them; packed, for a few. `unpack` is the
    way back, and costs nothing where a compiler can read the slices in place.
    """
    groups: dict[str, list[Array]] = {}
    for leaf in jax.tree.leaves(tree):
        data = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        groups.setdefault(str(data.dtype), []).append(data.reshape(*data.shape[:axes], -1))
    return {name: jnp.concatenate(parts, axis=-1) for name, parts in groups.items()}


def unpack(packed: dict[str, Array], like: Any, axes: int = 1) -> Any:
    """The tree that was packed. `like` has its structure, dtypes and, after its own `axes` leading axes, shapes."""
    leaves, structure = jax.tree.flatten(like)
    used = dict.fromkeys(packed, 0)
    found = []
    for leaf in leaves:
        data = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        shape, name = data.shape[axes:], str(data.dtype)
        start, used[name] = used[name], used[name] + math.prod(shape)
        rows = packed[name]
        if start < used[name]:
            part = rows[..., start : used[name]].reshape(*rows.shape[:-1], *shape)
        else:  # an empty slice at the end of a concatenation aborts XLA's CPU compiler (jaxlib 0.10.2)
            part = jnp.zeros((*rows.shape[:-1], *shape), rows.dtype)
        found.append(jax.random.wrap_key_data(part, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else part)
    return jax.tree.unflatten(structure, found)


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
