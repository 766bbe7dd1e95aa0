"""A recurrent policy: a GRU under the heads. It shows that memory is another `Networks` type and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.ppo.networks import ActorCritic, Output


class Cell(nn.Module):
    """One time step: GRU, then the actor-critic on its output."""

    size: int
    action_size: int

    @nn.compact
    def __call__(self, carry: Array, obs: Array) -> tuple[Array, Output]:
        carry, feature = nn.GRUCell(self.size)(carry, obs)
        heads = ActorCritic(self.action_size, (self.size,), None, "tanh", 0.0, "float32")
        return carry, heads(feature, feature)


@dataclasses.dataclass(frozen=True)
class Recurrent:
    """Memory [..., size], zero at an episode's start."""

    size: int
    action_size: int

    def init(self, key: Array, obs: Array) -> Any:
        return Cell(self.size, self.action_size).init(key, jnp.zeros(self.size), obs)

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Array:
        return jnp.zeros((*batch_shape, self.size))

    def step(self, params: Any, obs: Array, carry: Array) -> tuple[Output, Array]:
        carry, output = Cell(self.size, self.action_size).apply(params, carry, obs)  # type: ignore[misc]
        return output, carry

    def unroll(self, params: Any, obs: Array, carry: Array, reset: Array) -> Output:
        def step(carry: Array, now: tuple[Array, Array]) -> tuple[Array, Output]:
            obs, reset = now
            output, carry = self.step(params, obs, jnp.where(reset[:, None], 0.0, carry))
            return carry, output

        return jax.lax.scan(step, carry, (obs, reset))[1]
