"""T control steps in each of B envs, with the current policy. Axes: T time, B envs, A action size."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.env import State, VecEnv, reset_done
from mjxgym.ppo import distributions, episodes
from mjxgym.ppo.config import PPOConfig
from mjxgym.ppo.networks import Networks, Output
from mjxgym.ppo.normalise import Moments, normalise


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
    """Sums over envs of what a step reports; [] or, after the scan, [T]. Named by the env's and engine's own types."""

    nonfinite: Any  # world-steps quarantined, by cause
    overflow: Any  # world-steps with a full buffer, by buffer
    overflow_any: Array
    terms: Any  # reward terms, over valid steps
    valid: Array


class Start(NamedTuple):
    """An episode's beginning: the state, what the network says of it, and its memory after saying so."""

    states: State
    output: Output
    carry: Any


def rollout(
    vec: VecEnv, net: Networks, config: PPOConfig, params: Any, obs_stats: Moments | None, worlds: Worlds,
    fresh: State, key: Array,
) -> tuple[Worlds, Transition, Counts, episodes.Finished]:  # fmt: skip
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

    def step(loop, noise: Array):
        now, carry, began, ends, tally = loop
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

        done = after.done
        start = choose_start(starts, ends)
        states = reset_done(after, start.states)
        output, carry_next = where(done, (start.output, start.carry), (seen, carry_after))
        carry = where(done, empty, now.carry)
        loop = Start(states, output, carry_next), carry, done, ends + done, tally
        return loop, (transition, count(after), finished)

    nobody = jnp.zeros(num_envs, bool)
    loop = now, worlds.carry, nobody, jnp.zeros(num_envs, jnp.int32), worlds.tally
    (now, carry, _, _, tally), (transitions, counts, finished) = jax.lax.scan(step, loop, noise)
    return Worlds(now.states, carry, episodes.remember(tally, finished)), transitions, counts, finished


def choose_start(starts: Start, ends: Array) -> Start:
    """Env i takes start i the first time it ends, start i+1 the second time...: `ends` [B] int32 counts them.

    So no env replays a start within a rollout (unless it ends more than B times). The price: an env that ends twice
    may share a start with its neighbour; their actions, and so their episodes, differ.
    """
    num_envs = ends.shape[0]
    row = (jnp.arange(num_envs) + ends) % num_envs
    return jax.tree.map(lambda leaf: leaf[row], starts)


def where(mask: Array, chosen: Any, other: Any) -> Any:
    """Leaf by leaf, rows of `chosen` where `mask` [B], else of `other`."""

    def leaf(new: Array, old: Array) -> Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (old.ndim - mask.ndim)), new, old)

    return jax.tree.map(leaf, chosen, other)


def count(after: State) -> Counts:
    """Sum the step's reports over its B envs."""
    valid = after.valid

    def worlds(flag: Array) -> Array:
        return jnp.sum(flag, dtype=jnp.float32)

    buffers = jax.tree.leaves(after.faults.overflow)
    return Counts(
        nonfinite=jax.tree.map(worlds, after.faults.nonfinite),
        overflow=jax.tree.map(worlds, after.faults.overflow),
        overflow_any=worlds(jnp.any(jnp.stack(buffers), axis=0)) if buffers else jnp.zeros(()),
        terms=jax.tree.map(lambda term: jnp.sum(jnp.where(valid, term, 0.0)), after.metrics),
        valid=worlds(valid),
    )
