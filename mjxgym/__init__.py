"""mjxgym: thousands of MuJoCo worlds, their rewards and PPO as one compiled XLA step, in pure functions.

import jax, mjxgym
env = mjxgym.make("ant")
state = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 64))
state = jax.jit(jax.vmap(env.step))(state, actions)      # actions [64, env.action_size]
"""

from typing import Any

from mjxgym import versions

versions.check()

from mjxgym import envs  # noqa: E402
from mjxgym.config import env_config, task_names  # noqa: E402
from mjxgym.env import Env, State, VecEnv, reset_done, vectorise  # noqa: E402

__version__ = "0.1.0"
__all__ = ["Env", "State", "VecEnv", "list_envs", "make", "reset_done", "vectorise"]


def list_envs() -> list[str]:
    """Names that `make` and `env=` take."""
    return task_names()


def make(name: str, engine: str = "auto", **overrides: Any) -> Env:
    """An env: pure `reset(key) -> State` and `step(state, action) -> State`, ready for jit, vmap and scan.

    `engine` is auto, warp, jax or c. `overrides` are fields of the task's `Config`: `episode_length=500`,
    `weights={"effort": -0.01}`. ValueError for an unknown name or field, RuntimeError for an engine not to be had here.
    """
    return envs.task(name).make(env_config(name, **overrides), engine)
