"""Reward terms and their sum: functions of arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array


def weighted_sum(weights: Any, terms: Any) -> Array:
    """Sum of weight times term over two NamedTuples of the same type, [] float32."""
    assert type(weights) is type(terms), (type(weights), type(terms))
    return sum((weight * term for weight, term in zip(weights, terms, strict=True)), start=jnp.zeros(()))


def unless(dead: Array, terms: Any) -> Any:
    """The terms, all 0 where `dead`: what is left when death replaces the whole reward."""
    return type(terms)(*(jnp.where(dead, 0.0, jnp.asarray(term, jnp.float32)) for term in terms))


def squared(vector: Array) -> Array:
    """Sum of squares."""
    return jnp.sum(vector * vector)


def approach(before: Array, after: Array, target: Array) -> Array:
    """How much nearer to `target` the move from `before` to `after` led, in the unit of the positions.

    a - b = (a^2 - b^2) / (a + b): the difference of two float32 distances of 1000 m would be good to 0.06 mm only,
    0.004 m/s over a control step of 1/60 s.
    """
    distances = jnp.linalg.norm(target - before) + jnp.linalg.norm(target - after)
    return jnp.dot(after - before, 2.0 * target - before - after) / distances
