"""E epochs over M minibatches of one rollout: gradient, Adam, learning rate. Axes: T time, B envs, E, M."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from mjxgym.ppo import distributions
from mjxgym.ppo.config import PPOConfig
from mjxgym.ppo.loss import Batch, Losses, masked_mean, ppo_loss
from mjxgym.ppo.networks import Networks
from mjxgym.ppo.normalise import Moments, normalise
from mjxgym.ppo.schedule import adapt


class Policy(NamedTuple):
    """A Gaussian per step of the rollout, [T, B, A] each."""

    mean: Array
    log_std: Array


class Learner(NamedTuple):
    """What an update changes."""

    params: Any
    opt_state: Any
    learning_rate: Array  # [] float32
    last: Policy  # at the last visit of each step; the rollout's at first


class Report(NamedTuple):
    """Of one minibatch, or [E, M] of all."""

    losses: Losses
    kl: Array
    finite: Array  # bool, False: its gradient was not a number and nothing was changed


def optimiser(config: PPOConfig) -> optax.GradientTransformation:
    """Adam's direction, the gradient's global norm clipped before it; the learning rate multiplies it afterwards."""
    adam = optax.flatten(optax.scale_by_adam(eps=1e-8))  # one long vector: a few kernels, not a few per layer
    return adam if config.max_grad_norm is None else optax.chain(optax.clip_by_global_norm(config.max_grad_norm), adam)


def improve(
    net: Networks, config: PPOConfig, obs_stats: Moments | None, batch: Batch, learner: Learner
) -> tuple[Learner, Report]:
    """All epochs; reports are [E, M].

    A minibatch is a block of whole envs, [T, B/M], always the same ones: rl_games does not shuffle. The learning rate
    follows KL(new || old) between consecutive visits of a block, not against the rollout (rl_games overwrites the
    stored policy after every minibatch); the ratio in the loss always is against the rollout.
    """
    size = batch.valid.shape[1] // config.num_minibatches

    def minibatch(learner: Learner, index: Array) -> tuple[Learner, Report]:
        rows = block(batch, index * size, size)
        old = Policy(*(jax.lax.dynamic_slice_in_dim(part, index * size, size, axis=1) for part in learner.last))
        obs = normalise(obs_stats, rows.obs, config.obs_clip)
        grads, (losses, new) = jax.grad(ppo_loss, has_aux=True)(learner.params, net, config, obs, rows)
        updates, opt_state = optimiser(config).update(grads, learner.opt_state, learner.params)
        params = jax.tree.map(lambda param, change: param - learner.learning_rate * change, learner.params, updates)
        kl = masked_mean(distributions.kl(new.mean, new.log_std, *old), rows.valid)
        rate = adapt(learner.learning_rate, kl, config) if config.kl_per == "minibatch" else learner.learning_rate

        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(grad)) for grad in jax.tree.leaves(grads)]))
        params, opt_state, rate, seen = jax.tree.map(
            lambda changed, same: jnp.where(finite, changed, same),
            (params, opt_state, rate, Policy(new.mean, new.log_std)),
            (learner.params, learner.opt_state, learner.learning_rate, old),
        )
        last = Policy(
            *(
                jax.lax.dynamic_update_slice_in_dim(whole, part, index * size, axis=1)
                for whole, part in zip(learner.last, seen, strict=True)
            )
        )
        return Learner(params, opt_state, rate, last), Report(losses, kl, finite)

    def epoch(learner: Learner, _: None) -> tuple[Learner, Report]:
        learner, reports = jax.lax.scan(minibatch, learner, jnp.arange(config.num_minibatches))
        if config.kl_per == "epoch":
            rate = adapt(learner.learning_rate, masked_mean(reports.kl, reports.finite), config)
            rate = jnp.where(jnp.any(reports.finite), rate, learner.learning_rate)
            learner = learner._replace(learning_rate=rate)
        return learner, reports

    return jax.lax.scan(epoch, learner, length=config.num_epochs)


def block(batch: Batch, start: Array, size: int) -> Batch:
    """Envs `start` to `start + size` of a batch."""

    def cut(axis: int) -> Callable[[Array], Array]:
        return lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size, axis=axis)

    rows = jax.tree.map(cut(1), batch._replace(carry=()))
    return rows._replace(carry=jax.tree.map(cut(0), batch.carry))
