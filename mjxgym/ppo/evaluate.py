"""Whole episodes with the mean action, apart from training. Axes: N envs."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.env import State, VecEnv, select
from mjxgym.ppo.config import PPOConfig
from mjxgym.ppo.networks import Networks
from mjxgym.ppo.normalise import Moments, normalise


class Episodes(NamedTuple):
    """The first whole episode of each env; [N] each. Where not `finished`, the sums stop at the last step played."""

    returns: Array  # float32, in the task's units
    lengths: Array  # int32, control steps
    terminated: Array  # bool, ended by the task, not by the clock; False where quarantined
    truncated: Array  # bool, ended by the clock
    quarantined: Array  # bool, the physics broke
    terms: Any  # the task's NamedTuple of reward terms, float32 sums over the episode, before weights

    @property
    def finished(self) -> Array:
        """[N] bool, the episode ended, for whatever reason, within the steps given."""
        return self.terminated | self.truncated | self.quarantined


@partial(jax.jit, static_argnames=("net", "config", "num_envs", "num_steps"))
def evaluate(
    vec: VecEnv, net: Networks, params: Any, obs_stats: Moments | None, config: PPOConfig, key: Array,
    num_envs: int, num_steps: int,
) -> Episodes:  # fmt: skip
    """Play `num_steps` steps from fresh starts; an env whose episode has ended stands still."""
    states = vec.reset(jax.random.split(key, num_envs))
    nobody = jnp.zeros(num_envs, bool)
    zero = jnp.zeros(num_envs, jnp.float32)
    terms = jax.tree.map(jnp.zeros_like, states.metrics)
    nothing = Episodes(zero, jnp.zeros(num_envs, jnp.int32), nobody, nobody, nobody, terms)

    def step(loop: tuple[State, Any, Episodes], _: None) -> tuple[tuple[State, Any, Episodes], None]:
        states, carry, record = loop
        playing = ~record.finished
        output, carry = net.step(params, normalise(obs_stats, states.obs, config.obs_clip), carry)
        after = vec.step(states, output.mean)
        played = Episodes(
            returns=record.returns + after.reward,
            lengths=record.lengths + 1,
            terminated=after.terminated & after.valid,
            truncated=after.truncated,
            quarantined=~after.valid,
            terms=jax.tree.map(jnp.add, record.terms, after.metrics),
        )
        states, record = select(playing, (after, played), (states, record))
        return (states, carry, record), None

    loop = states, net.initial_carry((num_envs,)), nothing
    (_, _, record), _ = jax.lax.scan(step, loop, length=num_steps)
    return record
