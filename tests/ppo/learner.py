"""Runs the learner on a probe: tiny network, many iterations, little compile."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array

from mjxgym import ppo
from mjxgym.env import vectorise
from mjxgym.ppo.normalise import denormalise, normalise

NUM_ENVS = 32
CONFIG = ppo.PPOConfig(
    num_steps=16,
    num_epochs=4,
    num_minibatches=2,
    learning_rate=3e-3,
    hidden=(16,),
    activation="tanh",
    reward_scale=1.0,
)
# The same function with LLVM told not to try: half the compile time, and these arrays need no speed.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
train = jax.jit(
    ppo.train_many, static_argnames=("net", "config", "max_count"), donate_argnames="ts", compiler_options=QUICK
)
MAX_COUNT = 3000


class Learned(NamedTuple):
    config: ppo.PPOConfig
    net: ppo.Networks
    ts: ppo.TrainState
    metrics: dict[str, Array]

    def look(self, obs: Any) -> tuple[Array, Array]:
        """Mean action [N] and value [N], in scaled reward units, of `obs` [N, ...] at an episode's start."""
        num = jax.tree.leaves(obs)[0].shape[0]
        seen = normalise(self.ts.obs_stats, obs, self.config.obs_clip)
        output, _ = self.net.step(self.ts.params, seen, self.net.initial_carry((num,)))
        return output.mean[:, 0], denormalise(self.ts.value_stats, output.value)


def learn(
    env: Any, iterations: int, config: ppo.PPOConfig = CONFIG, net: Any = None, seed: int = 0, num_envs: int = NUM_ENVS
) -> Learned:
    vec = vectorise(env)
    net = net or ppo.make_networks(config, jax.eval_shape(env.reset, jax.random.key(0)).obs, env.action_size)
    ts = ppo.init(vec, net, config, num_envs, jax.random.key(seed))
    ts, metrics, _ = train(vec, net, config, ts, iterations, MAX_COUNT)
    return Learned(config, net, ts, {name: row[:iterations] for name, row in metrics.items()})
