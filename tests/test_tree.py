"""Records, and trees carried as one array of each dtype."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from mjxgym.tree import Record, pack, static, unpack


class Point(Record):
    at: Array
    name: str = static()
    weight: Any = 1.0


class Pair(NamedTuple):
    key: Array
    flag: Array


class Mixed(Record):
    pair: Pair
    other: Array
    more: dict[str, Any]


def test_a_record_is_frozen():
    point = Point(jnp.zeros(2), "a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.name = "b"  # type: ignore[misc]


def test_replace_makes_a_copy_and_refuses_unknown_names():
    point = Point(jnp.zeros(2), "a")
    other = point.replace(name="b")
    assert (point.name, other.name) == ("a", "b")
    assert other.at is point.at
    with pytest.raises(TypeError, match="wieght"):
        point.replace(wieght=2.0)


def test_static_fields_are_metadata_and_the_others_data():
    point = Point(jnp.arange(2), "a", weight={"x": jnp.ones(3)})
    assert len(jax.tree.leaves(point)) == 2
    doubled = jax.tree.map(lambda leaf: 2 * leaf, point)
    assert doubled.name == "a"
    np.testing.assert_array_equal(doubled.at, [0, 2])
    assert jax.tree.structure(point) != jax.tree.structure(point.replace(name="b"))
    (path, _), _ = jax.tree_util.tree_leaves_with_path(point)
    assert jax.tree_util.keystr(path) == ".at"


def test_a_new_static_value_is_a_new_compile():
    traces = []

    @jax.jit
    def run(point: Point) -> Array:
        traces.append(point.name)
        return point.at + point.weight

    for name in ("a", "b", "a"):
        run(Point(jnp.zeros(2), name))
    assert traces == ["a", "b"]


def tree(*lead: int, impl: str = "threefry2x32") -> Mixed:
    """Leaves with the leading axes `lead`: keys, flags, words, NaN and -0, an int8, and leaves of no elements."""
    key, count = jax.random.key(0), int(np.prod(lead))
    keys = jax.random.split(jax.random.key(1, impl=impl), count).reshape(lead)
    bits = jax.random.bits(key, (*lead, 3), jnp.uint32)
    return Mixed(
        Pair(keys, jax.random.bernoulli(key, shape=(*lead, 2, 2))),
        jax.lax.bitcast_convert_type(bits, jnp.float32),  # any bits at all
        {
            "scalar": jnp.where(jnp.arange(count).reshape(lead) % 2 == 0, jnp.nan, -0.0),
            "words": bits,
            "whole": jnp.arange(count, dtype=jnp.int32).reshape(lead),
            "small": jnp.full((*lead, 1, 4), -7, jnp.int8),
            "none": jnp.zeros((*lead, 3, 0)),
            "no_flags": jnp.zeros((*lead, 0), bool),
        },
    )


def bits(leaf: Array) -> bytes:
    return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf).tobytes()


def assert_same_bits(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert bits(a) == bits(b)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("lead", [(5,), (3, 2)])
def test_what_is_packed_comes_back_to_the_bit(lead: tuple[int, ...], impl: str):
    before = tree(*lead, impl=impl)
    packed = pack(before, axes=len(lead))
    assert set(packed) == {"float32", "uint32", "bool", "int32", "int8"}
    assert all(rows.shape[:-1] == lead for rows in packed.values())
    assert all(str(rows.dtype) == name for name, rows in packed.items())
    assert_same_bits(unpack(packed, before, axes=len(lead)), before)


def test_a_row_is_unpacked_by_the_shapes_of_the_batch_and_under_vmap():
    before = tree(5)
    packed = pack(before)
    row = jax.tree.map(lambda leaf: leaf[2], before)
    assert_same_bits(unpack({name: rows[2] for name, rows in packed.items()}, before), row)
    alone = jax.vmap(lambda packed: unpack(packed, row, axes=0))(packed)
    assert_same_bits(alone, before)


def test_more_leading_axes_may_come_and_go():
    """What is packed over [B] and stacked over [T] unpacks to [T, B, ...]."""
    before = tree(5)
    packed = pack(before)
    stacked = {name: jnp.stack([rows, rows]) for name, rows in packed.items()}
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), before)
    assert_same_bits(unpack(stacked, before), twice)


def test_it_works_under_jit_and_on_nothing():
    before = tree(5)
    assert_same_bits(jax.jit(lambda tree: unpack(pack(tree), tree))(before), before)
    assert unpack(pack(()), ()) == ()
