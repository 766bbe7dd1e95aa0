"""What every task is: an engine, its `Config`, and how a `State` begins and goes on."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from mjxgym.env import State, quarantine
from mjxgym.envs import faults, rewards
from mjxgym.physics import Data, Engine
from mjxgym.tree import Record, static


class Base(Record):
    """A task on an engine; what the commands ask of one is here (`envs.Task`)."""

    physics: Engine
    config: Any = static()

    @property
    def obs_names(self) -> tuple[tuple[str, int], ...]:
        """(name, size) of the parts of an observation, in order."""
        raise NotImplementedError

    @property
    def obs_size(self) -> int:
        return sum(size for _, size in self.obs_names)

    @property
    def episode_length(self) -> int:
        return self.config.episode_length

    @property
    def control_dt(self) -> float:
        """Seconds per control step."""
        return self.physics.sim_dt * self.config.substeps

    @property
    def reward_weights(self) -> Any:
        return self.config.weights

    def begin(self, data: Data, obs: Array, key: Array) -> State:
        """A fresh episode."""
        return State(
            data=data,
            obs=obs,
            reward=jnp.zeros(()),
            terminated=jnp.zeros((), bool),
            truncated=jnp.zeros((), bool),
            step_count=jnp.zeros((), jnp.int32),
            key=key,
            memory=(),
            metrics=type(self.reward_weights)(*(jnp.zeros(()),) * len(self.reward_weights)),
            faults=faults.none_yet(data),
        )

    def follow(self, state: State, data: Data, obs: Array, terms: Any, terminated: Array) -> State:
        """The state after a control step that led to `data`, its clock, reward and quarantine."""
        step_count = state.step_count + 1
        after = state.replace(
            data=data,
            obs=obs,
            reward=rewards.weighted_sum(self.reward_weights, terms),
            terminated=terminated,
            truncated=~terminated & (step_count >= self.episode_length),
            step_count=step_count,
            metrics=terms,
            faults=faults.faults_of(self.physics, data),
        )
        return quarantine(state, after)
