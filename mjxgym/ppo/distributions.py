"""The policy's distribution: a Gaussian with diagonal covariance over unclipped actions.

The env clips an action to [-1, 1]; every density here is that of the action before the clip, as in rl_games.
All functions take `[..., A]` arrays and sum over A.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array


def sample(mean: Array, log_std: Array, noise: Array) -> Array:
    """An action from standard normal `noise`; all [..., A]."""
    return mean + jnp.exp(log_std) * noise


def log_prob(mean: Array, log_std: Array, action: Array) -> Array:
    """Log-density of `action` -> [...], nats."""
    z = (action - mean) * jnp.exp(-log_std)
    return -jnp.sum(0.5 * jnp.square(z) + log_std + 0.5 * math.log(2.0 * math.pi), axis=-1)


def entropy(log_std: Array) -> Array:
    """Differential entropy -> [...], nats."""
    return jnp.sum(log_std + 0.5 * math.log(2.0 * math.pi * math.e), axis=-1)


def kl(mean: Array, log_std: Array, other_mean: Array, other_log_std: Array) -> Array:
    """KL(first || other) -> [...], nats, in closed form.

    rl_games puts 1e-5 inside its logarithm and denominator, which makes the KL of two equal narrow policies negative;
    with log-deviations at hand nothing can divide by zero, so this is exact.
    """
    ratio = jnp.exp(2.0 * (log_std - other_log_std))
    distance = jnp.square((mean - other_mean) * jnp.exp(-other_log_std))
    return jnp.sum(0.5 * (ratio + distance - 1.0) + other_log_std - log_std, axis=-1)
