"""The learning rate, from how far the policy moved (rl_games common/schedulers.py, AdaptiveScheduler)."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from mjxgym.ppo.config import PPOConfig

FACTOR = 1.5  # one step of the rate, up or down


def adapt(learning_rate: Array, kl: Array, config: PPOConfig) -> Array:
    """The next learning rate [] float32, given KL(new || old) [] of the last minibatch or epoch.

    Above twice the target it falls, below half of it it rises; a KL that is not a number changes nothing.
    """
    if config.schedule == "constant":
        return learning_rate
    lower = jnp.maximum(learning_rate / FACTOR, config.min_learning_rate)
    higher = jnp.minimum(learning_rate * FACTOR, config.max_learning_rate)
    learning_rate = jnp.where(kl < 0.5 * config.kl_target, higher, learning_rate)
    return jnp.where(kl > 2.0 * config.kl_target, lower, learning_rate)
