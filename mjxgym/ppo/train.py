"""One PPO iteration as a pure function of `TrainState`, and many of them in one XLA call.

The mechanics are rl_games' (a2c_continuous.py), with two differences on purpose. The obs normaliser is frozen during an
update and takes the rollout in after it, so the ratio starts at 1. A time limit always bootstraps from the value of the
true last observation. Axes: T time, B envs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.env import State, VecEnv
from mjxgym.ppo import episodes, faultbox
from mjxgym.ppo.config import PPOConfig
from mjxgym.ppo.faultbox import Box, Case, Snapshot, Steps
from mjxgym.ppo.gae import gae
from mjxgym.ppo.loss import Batch, masked_mean, standardise
from mjxgym.ppo.networks import Networks
from mjxgym.ppo.normalise import VALUE_CLIP, Moments, denormalise, moments, normalise, update
from mjxgym.ppo.rollout import Counts, Worlds, rollout
from mjxgym.ppo.update import Learner, Policy, Report, improve, optimiser
from mjxgym.tree import Record


class TrainState(Record):
    """Everything a run is: saved and restored, it continues as if never interrupted."""

    params: Any
    opt_state: Any
    learning_rate: Array  # [] float32
    obs_stats: Moments | None  # None: observations are not normalised
    value_stats: Moments | None  # None: values are not normalised
    states: State  # [B, ...]
    carry: Any  # the network's memory, leaves [B, ...]
    tally: episodes.Tally
    key: Array
    iteration: Array  # [] int32


def init(vec: VecEnv, net: Networks, config: PPOConfig, num_envs: int, key: Array) -> TrainState:
    """The state before the first iteration, its settings checked."""
    config.check(num_envs)
    return _init(vec, net, config, num_envs, key)


@partial(jax.jit, static_argnames=("net", "config", "num_envs"))
def _init(vec: VecEnv, net: Networks, config: PPOConfig, num_envs: int, key: Array) -> TrainState:
    key, reset_key, phase_key, net_key = jax.random.split(key, 4)
    states = vec.reset(jax.random.split(reset_key, num_envs))
    if config.stagger:
        phase = jax.random.randint(phase_key, (num_envs,), 0, vec.env.episode_length)
        states = states.replace(step_count=phase.astype(states.step_count.dtype))
    one_obs = jax.tree.map(lambda leaf: leaf[0], states.obs)
    params = net.init(net_key, one_obs)
    return TrainState(
        params=params,
        opt_state=optimiser(config).init(params),
        learning_rate=jnp.asarray(config.learning_rate, jnp.float32),
        obs_stats=moments(one_obs) if config.normalise_obs else None,
        value_stats=moments(jnp.zeros(())) if config.normalise_value else None,
        states=states,
        carry=net.initial_carry((num_envs,)),
        tally=episodes.tally(states.step_count == 0, config.recent_episodes),
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )


def train_step(vec: VecEnv, net: Networks, config: PPOConfig, ts: TrainState) -> tuple[TrainState, dict[str, Array]]:
    """One iteration: T steps in each of B envs, then E passes over M minibatches. Metrics are [] float32 by name."""
    ts, metrics, _ = _train_step(vec, net, config, None, ts)
    return ts, metrics


def _train_step(
    vec: VecEnv, net: Networks, config: PPOConfig, snapshot: Snapshot | None, ts: TrainState
) -> tuple[TrainState, dict[str, Array], Steps]:
    key, reset_key, rollout_key = jax.random.split(ts.key, 3)

    # Collect. `fresh` holds one new start per env; an env that finishes takes its own.
    fresh = vec.reset(jax.random.split(reset_key, ts.tally.length.shape[0]))
    before = Worlds(ts.states, ts.carry, ts.tally)
    worlds, traj, counts, finished, steps = rollout(
        vec, net, config, ts.params, ts.obs_stats, before, fresh, rollout_key, snapshot
    )

    # Judge, in scaled reward units; the network speaks normalised ones. [T, B]
    value = denormalise(ts.value_stats, traj.output.value)
    next_value = denormalise(ts.value_stats, traj.next_value)
    advantage = gae(
        traj.reward * config.reward_scale, value, next_value, traj.terminated, traj.truncated, traj.valid,
        config.discount, config.gae_lambda,
    )  # fmt: skip
    target = advantage + value
    value_stats = update(ts.value_stats, target, traj.valid)
    batch = Batch(
        obs=traj.obs,
        began=traj.began,
        action=traj.action,
        log_prob=traj.log_prob,
        advantage=standardise(advantage, traj.valid) if config.normalise_advantage else advantage,
        value=normalise(value_stats, value, VALUE_CLIP),
        target=normalise(value_stats, target, VALUE_CLIP),
        valid=traj.valid,
        carry=ts.carry,
    )

    # Improve.
    policy = Policy(traj.output.mean, traj.output.log_std)
    learner = Learner(ts.params, ts.opt_state, ts.learning_rate, policy)
    learner, report = improve(net, config, ts.obs_stats, batch, learner)

    metrics = {
        **episodes.statistics(worlds.tally, finished),
        **learning(report),
        "learning_rate": learner.learning_rate,
        "policy/std": masked_mean(jnp.mean(jnp.exp(learner.last.log_std), axis=-1), traj.valid),
        "value/explained_variance": explained_variance(value, target, traj.valid),
        **faults_and_terms(counts),
    }
    ts = TrainState(
        params=learner.params,
        opt_state=learner.opt_state,
        learning_rate=learner.learning_rate,
        obs_stats=update(ts.obs_stats, traj.obs, traj.valid),
        value_stats=value_stats,
        states=worlds.states,
        carry=worlds.carry,
        tally=worlds.tally,
        key=key,
        iteration=ts.iteration + 1,
    )
    return ts, metrics, steps


@partial(jax.jit, static_argnames=("net", "config", "max_count", "snapshot"), donate_argnames=("ts",))
def train_many(
    vec: VecEnv, net: Networks, config: PPOConfig, ts: TrainState, count: Array | int, max_count: int,
    snapshot: Snapshot | None = None,
) -> tuple[TrainState, dict[str, Array], dict[str, Case]]:  # fmt: skip
    """`count` iterations, at most `max_count`, in one call; metrics are [max_count], NaN from row `count` on.

    With a `snapshot`, the first quarantine of each cause in this call comes back as a `Case`; without, none does.

    `count` is data, so chunks of any length share one executable and a run cut in two is the same run. `ts` is donated:
    its buffers become the result's, and the caller must not use it again.
    """
    step = partial(_train_step, vec, net, config, snapshot)
    _, shapes, steps = jax.eval_shape(step, ts)
    names = sorted(shapes)
    rows = jnp.full((max_count, len(names)), jnp.nan, jnp.float32)
    box = faultbox.empty(steps) if snapshot else None

    def body(row: Array, loop: tuple[TrainState, Array, Box | None]) -> tuple[TrainState, Array, Box | None]:
        ts, rows, box = loop
        iteration = ts.iteration
        ts, metrics, steps = step(ts)
        if box is not None:
            box = faultbox.look(box, steps, iteration)
        return ts, rows.at[row].set(jnp.stack([metrics[name] for name in names])), box

    ts, rows, box = jax.lax.fori_loop(0, jnp.minimum(count, max_count), body, (ts, rows, box))
    cases = {} if box is None else box.cases
    return ts, {name: rows[:, column] for column, name in enumerate(names)}, cases


def learning(report: Report) -> dict[str, Array]:
    """Means over the minibatches that changed something, and how many did not."""
    means = {f"loss/{name}": masked_mean(part, report.finite) for name, part in named(report.losses).items()}
    return {
        "clip_fraction": means.pop("loss/clip_fraction"),
        **means,
        "kl": masked_mean(report.kl, report.finite),
        "nonfinite/gradient": jnp.sum(~report.finite, dtype=jnp.float32),
    }


def explained_variance(value: Array, target: Array, valid: Array) -> Array:
    """1 - var(target - value) / var(target): 1 is a perfect critic, 0 one that says the mean."""

    def variance(x: Array) -> Array:
        return masked_mean(jnp.square(x - masked_mean(x, valid)), valid)

    return 1.0 - variance(target - value) / (variance(target) + 1e-8)


def faults_and_terms(counts: Counts) -> dict[str, Array]:
    """World-steps that went wrong, by cause (causes exclude each other), and mean unweighted reward terms."""
    return {
        **{f"nonfinite/{name}": count for name, count in named(counts.nonfinite).items()},
        "nonfinite/total": jnp.sum(jnp.stack(counts.nonfinite)),
        **{f"overflow/{name}": count for name, count in named(counts.overflow).items()},
        "overflow/total": counts.overflow_any,
        **{f"reward/{name}": term / jnp.maximum(counts.valid, 1.0) for name, term in named(counts.terms).items()},
    }


def named(values: Any) -> dict[str, Array]:
    """A NamedTuple's fields by name; `()` has none."""
    return dict(zip(getattr(values, "_fields", ()), values, strict=True))
