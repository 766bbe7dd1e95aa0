"""T control steps in each of B envs, with the current policy. Axes: T time, B envs, A action size."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.env import Faults, State, VecEnv, select
from mjxgym.ppo import distributions, episodes
from mjxgym.ppo.config import PPOConfig
from mjxgym.ppo.faultbox import Snapshot, Steps
from mjxgym.ppo.networks import Networks, Output
from mjxgym.ppo.normalise import Moments, normalise
from mjxgym.tree import pack, unpack


class Worlds(NamedTuple):
    """What lives on between rollouts, one row per env."""

    states: State  # [B, ...]
    carry: Any  # the network's memory before it sees `states.obs`, leaves [B, ...]
    tally: episodes.Tally


class Transition(NamedTuple):
    """One control step of all envs; [B, ...], or [T, B, ...] after the scan. Values are in normalised units."""

    obs: Any  # raw, what the action was chosen from
    began: Array  # bool, `obs` begins an episode inside this rollout
    action: Array  # [B, A] before the env's clip
    log_prob: Array
    output: Output  # of the rollout's policy
    next_value: Array  # of the obs the step truly led to, before any reset
    reward: Array  # in the task's units
    terminated: Array
    truncated: Array
    valid: Array  # bool, not quarantined


class Counts(NamedTuple):
    """What the steps of a rollout report, summed over T and B; [] float32, by the env's and engine's own names."""

    nonfinite: Any  # world-steps quarantined, by cause
    overflow: Any  # world-steps with a full buffer, by buffer
    overflow_any: Array
    terms: Any  # reward terms, over valid steps
    valid: Array


class Report(NamedTuple):
    """What one step says besides its transition, [B, ...] or [T, B, ...]."""

    faults: Faults
    terms: Any
    finished: episodes.Finished


class Start(NamedTuple):
    """An episode's beginning: the state, what the network says of it, and its memory after saying so."""

    states: State
    output: Output
    carry: Any


def rollout(
    vec: VecEnv, net: Networks, config: PPOConfig, params: Any, obs_stats: Moments | None, worlds: Worlds,
    fresh: State, key: Array, snapshot: Snapshot | None = None,
) -> tuple[Worlds, Transition, Counts, episodes.Finished, Steps]:  # fmt: skip
    """Play `config.num_steps` steps; an env whose episode ends takes its row of `fresh` [B, ...].

    The network runs once per step, on the obs a step truly led to: that values both ends of every step, time limits
    included, and is also the policy's next output wherever the episode goes on. Where it ended, the next output is that
    of the fresh start, known since before the loop. So exact bootstrapping costs one pass more than none at all.
    """
    num_envs = worlds.tally.length.shape[0]

    def look(obs: Any, carry: Any) -> tuple[Output, Any]:
        return net.step(params, normalise(obs_stats, obs, config.obs_clip), carry)

    empty = net.initial_carry((num_envs,))
    starts = Start(fresh, *look(fresh.obs, empty))
    now = Start(worlds.states, *look(worlds.states.obs, worlds.carry))
    noise = jax.random.normal(key, (config.num_steps, *now.output.mean.shape))  # [T, B, A]
    packed_starts = pack(starts)
    shapes: list[Any] = []  # of what a step stores, known once it is traced

    def step(loop: Any, noise: Array) -> tuple[Any, Any]:
        packed, carry, began, ends, tally = loop
        now = unpack(packed, like=starts)
        action = distributions.sample(now.output.mean, now.output.log_std, noise)
        after = vec.step(now.states, action)
        seen, carry_after = look(after.obs, now.carry)
        transition = Transition(
            obs=now.states.obs, began=began, action=action,
            log_prob=distributions.log_prob(now.output.mean, now.output.log_std, action), output=now.output,
            next_value=seen.value, reward=after.reward, terminated=after.terminated, truncated=after.truncated,
            valid=after.valid,
        )  # fmt: skip
        tally, finished = episodes.add(tally, after)

        # Reset: where an episode ended, the whole of a fresh start takes its place.
        done = after.done
        packed = select(done, choose_start(packed_starts, ends), pack(Start(after, seen, carry_after)))
        carry = select(done, empty, now.carry)
        kept = () if snapshot is None else snapshot(now.states, action, after)
        stored = transition, Report(after.faults, after.metrics, finished), kept
        shapes[:] = [stored]
        return (packed, carry, done, ends + done, tally), pack(stored)

    nobody = jnp.zeros(num_envs, bool)
    loop = pack(now), worlds.carry, nobody, jnp.zeros(num_envs, jnp.int32), worlds.tally
    (packed, carry, _, _, tally), stored = jax.lax.scan(step, loop, noise)
    transitions, report, kept = unpack(stored, like=shapes[0])
    after = unpack(packed, like=starts)
    tally = episodes.remember(tally, report.finished)
    steps = Steps(kept, report.faults.nonfinite)
    return Worlds(after.states, carry, tally), transitions, count(report, transitions.valid), report.finished, steps


def choose_start(starts: Any, ends: Array) -> Any:
    """Env i takes start i the first time it ends, start i+1 the second time...: `ends` [B] int32 counts them.

    So no env replays a start within a rollout (unless it ends more than B times). The price: an env that ends twice
    may share a start with its neighbour; their actions, and so their episodes, differ.
    """
    num_envs = ends.shape[0]
    row = (jnp.arange(num_envs) + ends) % num_envs
    return jax.tree.map(lambda leaf: leaf[row], starts)


def count(report: Report, valid: Array) -> Counts:
    """Sum the reports of all steps; `valid` [T, B]."""

    def total(flag: Array) -> Array:
        return jnp.sum(flag, dtype=jnp.float32)

    buffers = jax.tree.leaves(report.faults.overflow)
    return Counts(
        nonfinite=jax.tree.map(total, report.faults.nonfinite),
        overflow=jax.tree.map(total, report.faults.overflow),
        overflow_any=total(jnp.any(jnp.stack(buffers), axis=0)) if buffers else jnp.zeros(()),
        terms=jax.tree.map(lambda term: total(jnp.where(valid, term, 0.0)), report.terms),
        valid=total(valid),
    )
