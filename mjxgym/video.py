"""Films of a policy: it plays, and `physics.render` draws what happened. Axes: T control steps, W worlds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from mjxgym.build import Built, Policy, at_home, build
from mjxgym.config import TrainConfig, VideoConfig
from mjxgym.env import State, VecEnv, reset_done, select
from mjxgym.physics import render
from mjxgym.ppo import Networks, PPOConfig
from mjxgym.ppo.normalise import normalise
from mjxgym.strict import building

FPS = 30.0  # about; a film shows every so many control steps, in real time


class Worlds(NamedTuple):
    """Worlds being played; leaves [W, ...]."""

    states: State
    carry: Any  # the network's memory


def rebuild(settings: TrainConfig, engine: str) -> Built:
    """A run's env and network on an engine, whatever the run's own."""
    with at_home(engine):
        return build(replace(settings, engine=engine))[0]


def check(built: Built, wanted: VideoConfig) -> None:
    """UserError if films of this env cannot be as wanted: size, camera."""
    with building():
        render.check_size(wanted.width, wanted.height, wanted.envs)
        render.camera_id(built.env.physics.names.model, wanted.camera)


def film(built: Built, policy: Policy, config: PPOConfig, wanted: VideoConfig, path: Path, seed: int) -> render.Film:
    """Play and draw. Errors: see `render.film`."""
    dt = built.env.control_dt
    stride = max(1, round(1.0 / (FPS * dt)))
    qpos = record(built, policy, config, seed, wanted.envs, max(1, round(wanted.seconds / dt)))
    return render.film(
        built.env.physics.names.model, qpos[::stride], path, 1.0 / (dt * stride), wanted.width, wanted.height,
        wanted.camera, wanted.renderer,
    )  # fmt: skip


def record(built: Built, policy: Policy, config: PPOConfig, seed: int, num_envs: int, num_steps: int) -> np.ndarray:
    """qpos [T, W, nq] before each of so many steps with the mean action; ended episodes are followed by fresh ones."""
    with at_home(built.env.physics.name, policy) as policy:
        played = _play(built.vec, built.net, config, policy, jax.random.key(seed), num_envs, num_steps)
        return np.asarray(played)


@partial(jax.jit, static_argnames=("net", "num_envs"))
def begin(vec: VecEnv, net: Networks, key: Array, num_envs: int) -> Worlds:
    """So many fresh starts."""
    return Worlds(vec.reset(jax.random.split(key, num_envs)), net.initial_carry((num_envs,)))


@partial(jax.jit, static_argnames=("net", "config"))
def advance(
    vec: VecEnv, net: Networks, config: PPOConfig, policy: Policy, worlds: Worlds, key: Array
) -> tuple[Array, Worlds]:
    """(qpos [W, nq] before a control step with the mean action, the worlds after it, ended ones begun again)."""
    states, carry = worlds
    num_envs = states.done.shape[0]
    output, carry = net.step(policy.params, normalise(policy.obs_stats, states.obs, config.obs_clip), carry)
    after = vec.step(states, output.mean)

    def renewed() -> Worlds:
        fresh = begin(vec, net, key, num_envs)
        return Worlds(reset_done(after, fresh.states), select(after.done, fresh.carry, carry))

    return states.data.qpos, jax.lax.cond(after.done.any(), renewed, lambda: Worlds(after, carry))


@partial(jax.jit, static_argnames=("net", "config", "num_envs", "num_steps"))
def _play(
    vec: VecEnv, net: Networks, config: PPOConfig, policy: Policy, key: Array, num_envs: int, num_steps: int
) -> Array:
    def step(worlds: Worlds, key: Array) -> tuple[Worlds, Array]:
        qpos, worlds = advance(vec, net, config, policy, worlds, key)
        return worlds, qpos

    start, later = jax.random.split(key)
    return jax.lax.scan(step, begin(vec, net, start, num_envs), jax.random.split(later, num_steps))[1]
