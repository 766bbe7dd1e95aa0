"""Policy and value networks behind one interface, `Networks`.

A network sees normalised observations and owns everything about its shape: which part of the obs the critic reads, and
what it remembers between steps. Rollout, loss and training only call the four functions, so an asymmetric critic or a
recurrent policy is another type, not a branch. Axes: T time, N envs, A action size.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.ppo.config import PPOConfig


class Output(NamedTuple):
    """What a network says about an observation; float32 whatever the matmuls run in."""

    mean: Array  # [..., A] mean action
    log_std: Array  # [..., A] log standard deviation of the action
    value: Array  # [...] in normalised units


class Networks(Protocol):
    """Hashable, with parameters outside: jit takes it as a static argument."""

    def init(self, key: Array, obs: Any) -> Any:
        """Parameters, for observations like the unbatched `obs`."""
        ...

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Any:
        """The memory at an episode's start, leaves [*batch_shape, ...]; `()` where there is none."""
        ...

    def step(self, params: Any, obs: Any, carry: Any) -> tuple[Output, Any]:
        """One time step of `[B, ...]` observations: the output and the memory after it."""
        ...

    def unroll(self, params: Any, obs: Any, carry: Any, reset: Array) -> Output:
        """A segment: `obs` [T, N, ...], `carry` [N, ...] before its first step, `reset` [T, N] bool.

        Where `reset`, the obs begins an episode: the memory is the initial one there. Equal to T calls of `step`.
        """
        ...


# U(-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's default for Linear; biases are zero (rl_games network_builder.py).
kernel_init = nn.initializers.variance_scaling(1.0 / 3.0, "fan_in", "uniform")


def dense(width: int, dtype: Any = jnp.float32, name: str | None = None) -> nn.Dense:
    """A layer with rl_games' default initialisation."""
    return nn.Dense(width, dtype=dtype, kernel_init=kernel_init, name=name)


class Trunk(nn.Module):
    """The hidden layers, each followed by the activation; float32 in and out."""

    hidden: tuple[int, ...]
    activation: str
    dtype: str

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for width in self.hidden:
            x = getattr(nn, self.activation)(dense(width, dtype=jnp.dtype(self.dtype))(x))
        return x.astype(jnp.float32)


class ActorCritic(nn.Module):
    """Mean, state-independent log-std and value; the heads in float32. One trunk unless `critic_hidden` is given."""

    action_size: int
    hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...] | None
    activation: str
    initial_log_std: float
    dtype: str

    @nn.compact
    def __call__(self, actor_obs: Array, critic_obs: Array) -> Output:
        actor = Trunk(self.hidden, self.activation, self.dtype, name="actor")(actor_obs)
        critic = actor
        if self.critic_hidden is not None:
            critic = Trunk(self.critic_hidden, self.activation, self.dtype, name="critic")(critic_obs)
        mean = dense(self.action_size, name="mean")(actor)
        constant = nn.initializers.constant(self.initial_log_std)
        log_std = self.param("log_std", constant, (self.action_size,), jnp.float32)
        log_std = jnp.broadcast_to(log_std.reshape((1,) * (mean.ndim - 1) + (-1,)), mean.shape)
        return Output(mean, log_std, value=dense(1, name="value")(critic)[..., 0])


@dataclasses.dataclass(frozen=True)
class FeedForward:
    """No memory; actor and critic read the whole observation, its leaves joined in order along the last axis."""

    action_size: int
    hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...] | None  # None: the critic shares the actor's trunk
    activation: str = "elu"
    initial_log_std: float = 0.0
    dtype: str = "float32"

    def views(self, obs: Any) -> tuple[Array, Array]:
        """What the actor reads and what the critic reads, each [..., size]."""
        everything = join(obs)
        return everything, everything

    def module(self) -> ActorCritic:
        """The flax module with this network's sizes."""
        return ActorCritic(
            self.action_size, self.hidden, self.critic_hidden, self.activation, self.initial_log_std, self.dtype
        )

    def init(self, key: Array, obs: Any) -> Any:
        return self.module().init(key, *self.views(obs))

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Any:
        return ()

    def step(self, params: Any, obs: Any, carry: Any) -> tuple[Output, Any]:
        output = self.module().apply(params, *self.views(obs))
        assert isinstance(output, Output)
        return output, carry

    def unroll(self, params: Any, obs: Any, carry: Any, reset: Array) -> Output:
        return self.step(params, obs, carry)[0]


@dataclasses.dataclass(frozen=True)
class Asymmetric(FeedForward):
    """A critic with a trunk of its own that sees more: the observation's field `critic` is hidden from the actor."""

    def views(self, obs: Any) -> tuple[Array, Array]:
        return join([getattr(obs, name) for name in obs._fields if name != "critic"]), join(obs)


def join(obs: Any) -> Array:
    """All leaves, each [..., size], side by side along the last axis."""
    leaves = jax.tree.leaves(obs)
    return leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves, axis=-1)


def make_networks(config: PPOConfig, obs_example: Any, action_size: int) -> Networks:
    """The feed-forward network the config describes; asymmetric where the obs is a NamedTuple with a field `critic`."""
    for leaf in jax.tree.leaves(obs_example):
        if len(leaf.shape) != 1:
            raise ValueError(f"an observation has a leaf of shape {leaf.shape}; every leaf must be one vector [size]")
    asymmetric = "critic" in getattr(obs_example, "_fields", ())
    critic_hidden = config.critic_hidden or config.hidden
    return (Asymmetric if asymmetric else FeedForward)(
        action_size=action_size,
        hidden=config.hidden,
        critic_hidden=critic_hidden if config.separate_critic or asymmetric else None,
        activation=config.activation,
        initial_log_std=config.initial_log_std,
        dtype=config.dtype,
    )
