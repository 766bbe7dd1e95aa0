"""Pieces of observations: functions of arrays."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def unscale(value: Array, lower: Array, upper: Array) -> Array:
    """`value` with its range [lower, upper] mapped to [-1, 1]; beyond the range, beyond 1."""
    return (2.0 * value - upper - lower) / (upper - lower)


def join(parts: tuple[Array, ...]) -> Array:
    """The parts, numbers and vectors, one after another."""
    return jnp.concatenate([jnp.atleast_1d(part) for part in parts])
