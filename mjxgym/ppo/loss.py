"""The clipped PPO loss with rl_games' value, bounds and entropy terms. Axes: T time, N envs of a minibatch, A."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from mjxgym.ppo import distributions
from mjxgym.ppo.config import PPOConfig
from mjxgym.ppo.networks import Networks, Output


class Batch(NamedTuple):
    """What the loss needs of a rollout; [T, N, ...] except `carry`. Values are in normalised units."""

    obs: Any  # raw
    began: Array  # bool, `obs` begins an episode inside the rollout
    action: Array  # [T, N, A]
    log_prob: Array  # of the rollout's policy
    advantage: Array  # normalised over the whole rollout
    value: Array  # of the rollout's network
    target: Array  # what the value should be
    valid: Array  # bool, other steps weigh nothing
    carry: Any  # the network's memory before the first step, leaves [N, ...]


class Losses(NamedTuple):
    """The parts, each [] float32, before coefficients."""

    policy: Array
    value: Array
    bounds: Array
    entropy: Array
    clip_fraction: Array  # share of steps whose ratio lies outside 1 +- clip_epsilon


def ppo_loss(params: Any, net: Networks, config: PPOConfig, obs: Any, batch: Batch) -> tuple[Array, tuple]:
    """L = policy + 0.5 value_coef * value + bounds_coef * bounds - entropy_coef * entropy, means over valid steps.

    `obs` [T, N, ...] is `batch.obs` normalised. Also returns the `Losses` and the network's `Output` [T, N, ...].
    """
    output: Output = net.unroll(params, obs, batch.carry, batch.began)
    # Masked before they are used, not only in the means: the gradient of an unused NaN is 0 * NaN.
    log_prob, advantage, value, target = (
        jnp.where(batch.valid, part, 0.0) for part in (batch.log_prob, batch.advantage, batch.value, batch.target)
    )
    log_ratio = distributions.log_prob(output.mean, output.log_std, batch.action) - log_prob
    ratio = jnp.exp(jnp.where(batch.valid, log_ratio, 0.0))
    losses = Losses(
        policy=policy_loss(ratio, advantage, config.clip_epsilon),
        value=value_loss(output.value, value, target, config.clip_epsilon if config.clip_value else None),
        bounds=bounds_loss(output.mean, config.bounds_soft),
        entropy=distributions.entropy(output.log_std),
        clip_fraction=(jnp.abs(ratio - 1.0) > config.clip_epsilon).astype(jnp.float32),
    )
    losses = Losses(*(masked_mean(part, batch.valid) for part in losses))
    total = (
        losses.policy
        + 0.5 * config.value_coef * losses.value
        + config.bounds_coef * losses.bounds
        - config.entropy_coef * losses.entropy
    )
    return total, (losses, output)


def policy_loss(ratio: Array, advantage: Array, clip_epsilon: float) -> Array:
    """max(-A ratio, -A clip(ratio, 1 +- epsilon)), elementwise."""
    clipped = jnp.clip(ratio, 1.0 - clip_epsilon, 1.0 + clip_epsilon)
    return jnp.maximum(-advantage * ratio, -advantage * clipped)


def value_loss(value: Array, old_value: Array, target: Array, clip_epsilon: float | None) -> Array:
    """max((V - R)^2, (V_old + clip(V - V_old, +-epsilon) - R)^2), elementwise; (V - R)^2 where epsilon is None."""
    loss = jnp.square(value - target)
    if clip_epsilon is None:
        return loss
    near = old_value + jnp.clip(value - old_value, -clip_epsilon, clip_epsilon)
    return jnp.maximum(loss, jnp.square(near - target))


def bounds_loss(mean: Array, soft: float) -> Array:
    """sum over actions of max(mean - soft, 0)^2 + min(mean + soft, 0)^2; `mean` [..., A] -> [...]."""
    return jnp.sum(jnp.square(jnp.maximum(mean - soft, 0.0)) + jnp.square(jnp.minimum(mean + soft, 0.0)), axis=-1)


def masked_mean(value: Array, mask: Array) -> Array:
    """Mean of `value` where `mask`; 0 where there is nothing. What is masked may be anything, NaN included."""
    return jnp.sum(jnp.where(mask, value, 0.0)) / jnp.maximum(jnp.sum(mask, dtype=jnp.float32), 1.0)


def standardise(value: Array, mask: Array) -> Array:
    """(value - mean) / (std + 1e-8) with the mean and biased std of the masked part; 0 elsewhere."""
    centred = jnp.where(mask, value - masked_mean(value, mask), 0.0)
    return centred / (jnp.sqrt(masked_mean(jnp.square(centred), mask)) + 1e-8)
