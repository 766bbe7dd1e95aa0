"""Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438), with ends told apart. Axes: T time, B."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    valid: Array,
    discount: float,
    gae_lambda: float,
) -> Array:
    """Advantages [T, B]; all arrays are [T, B], rewards and values in the same units.

    `next_value` is the value of the obs each step truly led to, before any reset. A truncated step bootstraps from it,
    a terminated one from 0, and neither lets the next episode's advantages through. A step that is not `valid` has
    advantage 0 and cuts the chain too; the loss masks it.
    """
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    delta = jnp.where(valid, delta, 0.0)
    decay = jnp.where(terminated | truncated | ~valid, 0.0, discount * gae_lambda)

    def backwards(advantage_after: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = step
        advantage = delta + decay * advantage_after
        return advantage, advantage

    _, advantage = jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)
    return advantage
