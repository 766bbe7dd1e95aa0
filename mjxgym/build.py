"""From settings to things: the env and the network that a config describes, and the policy that a run folder holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax

from mjxgym import checkpoint, config, envs, physics, ppo, strict
from mjxgym.config import TrainConfig
from mjxgym.env import VecEnv, vectorise


class Built(NamedTuple):
    """What a config describes."""

    vec: VecEnv
    net: ppo.Networks

    @property
    def env(self) -> envs.Task:
        """One world of it."""
        return cast(envs.Task, self.vec.env)


class Policy(NamedTuple):
    """The part of a TrainState that acts; the names are its fields'."""

    params: Any
    obs_stats: Any  # ppo.normalise.Moments, or None


def build(wanted: TrainConfig) -> tuple[Built, TrainConfig]:
    """The vectorised env and its network; and the config with `engine` resolved, which is how it is saved."""
    with strict.building():
        engine = physics.resolve(wanted.engine)
        env = envs.task(wanted.task).make(wanted.env, engine)
        obs = jax.eval_shape(env.reset, jax.random.key(0)).obs
        net = ppo.make_networks(wanted.ppo, obs, env.action_size)
    return Built(vectorise(env), net), replace(wanted, engine=engine, run_dir=None, resume=None)


def restore(built: Built, saved: TrainConfig, folder: Path, name: str) -> tuple[Policy, dict[str, Any]]:
    """(the policy, the note beside it) of checkpoint `name`, best or last, of the run in `folder`.

    An engine's own buffers are no part of a policy: any engine's `built` will do.
    """
    shapes = jax.eval_shape(
        lambda key: ppo.init(built.vec, built.net, saved.ppo, saved.num_envs, key), jax.random.key(0)
    )
    path = folder / config.CHECKPOINTS / name
    return checkpoint.restore(path, Policy(shapes.params, shapes.obs_stats), saved.task)


@contextmanager
def at_home(engine: str, policy: Any = None) -> Iterator[Any]:
    """The policy where the engine is: c on the CPU, whatever else there is. What is computed inside is computed there.

    UserError if JAX has no CPU backend.
    """
    if engine != "c":
        yield policy
        return
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise strict.UserError("engine c needs JAX's CPU backend: set JAX_PLATFORMS=cuda,cpu, or unset it") from error
    with jax.default_device(cpu):
        yield jax.device_put(policy, cpu)
