"""mjxgym's envs for libraries that know Gymnasium: a vector env, and a single one for tools that want that.

    from mjxgym.gymnasium import GymVectorEnv
    envs = GymVectorEnv(mjxgym.make("ant"), num_envs=256)

or, once this module is imported, `gymnasium.make_vec("mjxgym/Ant-v0", num_envs=256, engine="c", episode_length=500)`.
NumPy comes out; a step is one compiled call and one transfer to the host. Axes: B = num_envs.

Start n of an env since it was seeded with s is `env.reset(jax.random.fold_in(jax.random.key(s), n))`, whatever its
neighbours do. Starts are drawn for all envs at once, one each, and again when some env needs its second.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jax import Array

import mjxgym
from mjxgym.env import Env, State, VecEnv, select, vectorise


class Worlds(NamedTuple):
    """What lasts from one step to the next; leaves [B, ...]."""

    states: State
    seeds: Array  # random keys
    starts: Array  # int32, how many starts each env has had of its seed
    fresh: State  # start number `starts` of each env, unless
    used: Array  # bool, that row of `fresh` has been played already


class Outcome(NamedTuple):
    """What a step tells the host; leaves [B, ...]."""

    obs: Any  # what the next action is chosen from
    last_obs: Any  # where an episode ended and the next began within the step, its true last; () in other modes
    reward: Array
    terminated: Array
    truncated: Array
    acted: Array  # bool, the action was used; False where the step began an episode instead
    terms: Any  # reward terms, before weights
    valid: Array  # bool, not quarantined


def begin(vec: VecEnv, seeds: Array) -> Worlds:
    """Every env at the first start of its seed, `seeds` [B]."""
    states = _draw(vec, seeds, jnp.zeros(len(seeds), jnp.int32))
    return Worlds(states, seeds, jnp.ones(len(seeds), jnp.int32), fresh=states, used=jnp.ones(len(seeds), bool))


def renew(vec: VecEnv, worlds: Worlds, ended: Array) -> Worlds:
    """Where `ended` [B], the env's next start takes the place of its state.

    All rows are drawn together, since a reset of the whole batch costs about as much as a step of it; so most steps in
    which an episode ends need no draw.
    """
    fresh, used = jax.lax.cond(
        jnp.any(ended & worlds.used),
        lambda: (_draw(vec, worlds.seeds, worlds.starts), jnp.zeros_like(worlds.used)),
        lambda: (worlds.fresh, worlds.used),
    )
    return worlds._replace(
        states=select(ended, fresh, worlds.states), starts=worlds.starts + ended, fresh=fresh, used=used | ended
    )


def restart(vec: VecEnv, worlds: Worlds, mask: Array, seeded: Array, seeds: Array) -> Worlds:
    """New episodes where `mask` [B]: of `seeds` [B] where `seeded` [B], else the next of the seed that env has."""
    seeded = mask & seeded
    worlds = worlds._replace(
        seeds=select(seeded, seeds, worlds.seeds),
        starts=jnp.where(seeded, 0, worlds.starts),
        used=worlds.used | seeded,
    )
    return renew(vec, worlds, mask)


def advance(vec: VecEnv, mode: AutoresetMode, worlds: Worlds, actions: Array) -> tuple[Worlds, Outcome]:
    """One control step with `actions` [B, A], and the new episodes that `mode` asks for."""
    before, after = worlds.states, vec.step(worlds.states, actions)
    worlds = worlds._replace(states=after)
    acted = jnp.ones_like(before.done)
    if mode is AutoresetMode.NEXT_STEP:
        worlds, acted = renew(vec, worlds, before.done), ~before.done
        after = worlds.states
    if mode is AutoresetMode.SAME_STEP:
        worlds = renew(vec, worlds, after.done)
    return worlds, Outcome(
        obs=worlds.states.obs,
        last_obs=after.obs if mode is AutoresetMode.SAME_STEP else (),
        reward=after.reward,
        terminated=after.terminated,
        truncated=after.truncated,
        acted=acted,
        terms=after.metrics,
        valid=after.valid,
    )


def _draw(vec: VecEnv, seeds: Array, numbers: Array) -> State:
    return vec.reset(jax.vmap(jax.random.fold_in)(seeds, numbers))


class GymVectorEnv(gymnasium.vector.VectorEnv):
    """B copies of an env behind Gymnasium's vector interface.

    `autoreset_mode` says when an ended episode is followed by the next, in Gymnasium's words and formats:

    - NEXT_STEP, its default: the step that ends an episode returns the true last observation; the next step ignores
      that env's action and returns the new start, with reward 0.
    - SAME_STEP: the step that ends an episode returns the new start already, and the true last observation in
      `infos["final_obs"]`: that is what a time limit bootstraps from. What else was known of that step is in
      `infos["final_info"]`.
    - DISABLED: `reset(options={"reset_mask": ended})` is the caller's part.

    `infos` hold `reward_terms`, by name, before weights, and `valid`, False where a broken world was quarantined. An
    observation that is a NamedTuple becomes a `spaces.Dict` of its fields.
    """

    def __init__(self, env: Env, num_envs: int, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; it must be at least 1")
        self.env, self.num_envs = env, num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space = _space(jax.eval_shape(env.reset, jax.random.key(0)).obs)
        self.single_action_space = spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        vec = vectorise(env)
        self._begin = jax.jit(functools.partial(begin, vec))
        self._restart = jax.jit(functools.partial(restart, vec))
        self._advance = jax.jit(functools.partial(advance, vec, self.autoreset_mode))
        self._worlds: Worlds | None = None
        self._ended = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """New episodes: in all envs, or where `options["reset_mask"]` [B].

        `seed`: env i gets `seed + i`, or item i of a sequence; where it is None, the env goes on with the seed it has.
        The first reset starts all envs, and one that is given no seed then gets a random one.
        """
        super().reset(seed=seed if isinstance(seed, int) else None)
        mask = self._mask(options or {})
        seeds = list(range(seed, seed + self.num_envs)) if isinstance(seed, int) else seed
        seeds = [None] * self.num_envs if seeds is None else list(seeds)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed has {len(seeds)} items; it must have one for each of the {self.num_envs} envs")
        if self._worlds is None:
            mask = np.ones(self.num_envs, bool)
            drawn = self.np_random.integers(2**32, size=self.num_envs)
            seeds = [int(other) if one is None else one for one, other in zip(seeds, drawn, strict=True)]
        if any(one is not None and not 0 <= one < 2**32 for one in seeds):
            raise ValueError(f"seed is {seed}; that of every env, `seed + i`, must lie in 0 .. 2**32 - 1")
        seeded = np.array([one is not None for one in seeds])
        keys = jax.vmap(jax.random.key)(np.array([one or 0 for one in seeds], np.uint32))
        if self._worlds is None or (mask.all() and seeded.all()):
            self._worlds = self._begin(keys)
        else:
            self._worlds = self._restart(self._worlds, mask, seeded, keys)
        self._ended = self._ended & ~mask
        return _owned(self._worlds.states.obs), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """`actions` [B, A], of NumPy or JAX, clipped by the env -> obs, reward, terminated, truncated, infos."""
        if self._worlds is None:
            raise ResetNeeded("step() was called before reset()")
        if np.shape(actions) != self.action_space.shape:
            raise ValueError(f"actions have shape {np.shape(actions)}; it must be {self.action_space.shape}")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            rows = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(f"the episodes of envs {rows} have ended: reset(options={{'reset_mask': ended}})")
        self._worlds, outcome = self._advance(self._worlds, jnp.asarray(actions, jnp.float32))
        host: Any = jax.device_get(outcome)
        self._ended = host.terminated | host.truncated
        return (
            _owned(host.obs),
            host.reward.astype(np.float64),
            host.terminated.copy(),
            host.truncated.copy(),
            self._infos(host),
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of the worlds."""
        self._worlds = None

    def _infos(self, outcome: Any) -> dict[str, Any]:
        told = {"reward_terms": _named(outcome.terms), "valid": outcome.valid}
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return _masked(told, outcome.acted)
        infos = _masked(told, ~self._ended)
        if self._ended.any():
            last = np.full(self.num_envs, None, object)
            for row in np.flatnonzero(self._ended):
                last[row] = _row(outcome.last_obs, row)
            infos |= {"final_obs": last, "_final_obs": self._ended.copy()}
            infos |= {"final_info": _masked(told, self._ended), "_final_info": self._ended.copy()}
        return infos

    def _mask(self, options: dict[str, Any]) -> np.ndarray:
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise ValueError(f"options['reset_mask'] is {mask}; it must be [{self.num_envs}] bool, not all False")
        return mask


class GymEnv(gymnasium.Env):
    """One copy of an env behind Gymnasium's interface: a batch of one, with a batch's cost per call.

    For evaluation, wrappers and checks; a learner wants `GymVectorEnv`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(self, env: Env) -> None:
        self._envs = GymVectorEnv(env, 1, AutoresetMode.DISABLED)
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode; see `GymVectorEnv.reset`."""
        super().reset(seed=seed)
        obs, _ = self._envs.reset(seed=seed)
        return _row(obs, 0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """`action` [A] -> obs, reward, terminated, truncated, info; the last as in `GymVectorEnv`, without masks."""
        obs, reward, terminated, truncated, infos = self._envs.step(np.asarray(action)[None])
        terms = {name: float(value[0]) for name, value in infos["reward_terms"].items() if not name.startswith("_")}
        info = {"reward_terms": terms, "valid": bool(infos["valid"][0])}
        return _row(obs, 0), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info


def make(task: str, engine: str = "auto", **overrides: Any) -> GymEnv:
    """What `gymnasium.make("mjxgym/Ant-v0", ...)` calls; arguments of `mjxgym.make`."""
    return GymEnv(mjxgym.make(task, engine, **overrides))


def make_vec(
    task: str, num_envs: int = 1, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    engine: str = "auto", **overrides: Any,
) -> GymVectorEnv:  # fmt: skip
    """What `gymnasium.make_vec("mjxgym/Ant-v0", ...)` calls; the rest are arguments of `mjxgym.make`."""
    return GymVectorEnv(mjxgym.make(task, engine, **overrides), num_envs, autoreset_mode)


def gym_id(task: str) -> str:
    """A task's name in Gymnasium's registry."""
    return f"mjxgym/{''.join(word.capitalize() for word in task.split('_'))}-v0"


def _space(obs: Any) -> spaces.Space[Any]:
    """Of one env's observation, an array's or a NamedTuple's shape; unbounded, as it is raw."""
    if hasattr(obs, "_asdict"):
        return spaces.Dict({name: _space(part) for name, part in obs._asdict().items()})
    return spaces.Box(-np.inf, np.inf, obs.shape, obs.dtype)


def _named(tree: Any) -> Any:
    """NamedTuples as dicts."""
    return {name: _named(part) for name, part in tree._asdict().items()} if hasattr(tree, "_asdict") else tree


def _owned(obs: Any) -> Any:
    """On the host, in memory that the caller may write to."""
    return jax.tree.map(np.array, _named(obs))


def _row(obs: Any, row: Any) -> Any:
    return jax.tree.map(lambda part: np.array(part[row]), _named(obs))


def _masked(told: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Gymnasium's infos: beside each key its mask, `_key` [B]; 0 or False in other rows."""
    infos: dict[str, Any] = {}
    for name, value in told.items():
        infos[name] = _masked(value, mask) if isinstance(value, dict) else np.where(mask, value, np.zeros_like(value))
        infos[f"_{name}"] = mask.copy()
    return infos


for task_name in mjxgym.list_envs():
    gymnasium.register(
        gym_id(task_name),
        entry_point="mjxgym.gymnasium:make",
        vector_entry_point="mjxgym.gymnasium:make_vec",
        kwargs={"task": task_name},
    )
