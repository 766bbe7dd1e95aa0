"""Shake a task's model with full-range controls and count what breaks: python -m mjxgym.stability env=ant

Every actuator jumps between its extremes on its own, which is what an untrained or exploring policy can do at worst.
World i redraws each sign with probability 1 / HOLDS[i % len(HOLDS)] a control step, so that fast shaking (a new sign
at every step) and long pushes are both tried. Episodes end and start again as in training. A model that is not stable
here will sooner or later ruin a training run: change its armature, damping, gains or time step until it is.

Settings: env=NAME engine=auto|warp|jax|c steps=1000000 num_envs=1024 seed=0; steps counts control steps of all worlds.
Exit code 1 if any step was not finite, diverged or overflowed a buffer, 2 if it cannot be done as asked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mjxgym import cache, make, physics, strict, xla
from mjxgym.env import Env, State, reset_done, vectorise
from mjxgym.strict import UserError

# Mean number of control steps between two draws of an actuator's sign.
HOLDS = (1, 2, 4, 8, 16, 32, 64)
# Control steps per compiled call; a world that ends more than once in a call gets the same start again.
CHUNK = 50


@dataclass(frozen=True)
class Settings:
    """What the command line may say."""

    env: str = "ant"
    engine: str = "auto"
    steps: int = 1_000_000
    num_envs: int = 1024
    seed: int = 0


class Report(NamedTuple):
    """What was seen. Counts are of world-steps, numpy ints by name."""

    steps: int
    episodes: int
    nonfinite: dict[str, int]  # by cause, see `mjxgym.env.Nonfinite`
    overflow: dict[str, int]  # by buffer, empty for engines that have none
    fastest: float  # largest |qvel| of a healthy step, m/s or rad/s

    @property
    def stable(self) -> bool:
        """Nothing broke."""
        return not any([*self.nonfinite.values(), *self.overflow.values()])


def shake(env: Env, steps: int, num_envs: int, seed: int = 0) -> Report:
    """Run at least `steps` control steps, spread over `num_envs` worlds."""
    vec = vectorise(env)
    draws = 1.0 / jnp.array(HOLDS, jnp.float32)[jnp.arange(num_envs) % len(HOLDS)]  # [B] per control step

    @jax.jit
    def chunk(states: State, fresh: State, action: Array, key: Array) -> tuple[State, Array, Any]:
        def one(carry: tuple[State, Array], key: Array) -> tuple[tuple[State, Array], Any]:
            states, action = carry
            chance = jax.random.uniform(key, action.shape) / draws[:, None]  # below 1: a new sign, either as likely
            action = jnp.where(chance < 0.5, -1.0, jnp.where(chance < 1.0, 1.0, action))
            states = vec.step(states, action)
            speed = jnp.where(states.valid[:, None], jnp.abs(states.data.qvel), 0.0)
            return (reset_done(states, fresh), action), (states.faults, states.done, jnp.max(speed))

        (states, action), (faults, done, speed) = jax.lax.scan(one, (states, action), jax.random.split(key, CHUNK))
        return states, action, (jax.tree.map(jnp.sum, faults), jnp.sum(done), jnp.max(speed))

    reset = jax.jit(lambda key: vec.reset(jax.random.split(key, num_envs)))
    start_key, key = jax.random.split(jax.random.key(seed))
    states, action, seen = reset(start_key), jnp.ones((num_envs, env.action_size)), []
    calls = -(-steps // (num_envs * CHUNK))
    for call_key in jax.random.split(key, calls):
        fresh_key, chunk_key = jax.random.split(call_key)
        states, action, counts = chunk(states, reset(fresh_key), action, chunk_key)
        seen.append(jax.device_get(counts))
    faults, episodes, speed = jax.tree.map(lambda *values: np.stack(values), *seen)

    def by_name(counts: Any) -> dict[str, int]:
        return {name: int(value.sum()) for name, value in counts._asdict().items()} if counts else {}

    return Report(
        steps=calls * CHUNK * num_envs,
        episodes=int(episodes.sum()),
        nonfinite=by_name(faults.nonfinite),
        overflow=by_name(faults.overflow),
        fastest=float(speed.max()),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    xla.tune()
    return strict.exit_code(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """Shake, say what was seen."""
    if any(word in ("-h", "--help") for word in argv):
        print(__doc__)
        return 0
    settings = load(argv)
    cache.enable()
    with strict.building():
        engine = physics.resolve(settings.engine)
        env = make(settings.env, engine)
    report = shake(env, settings.steps, settings.num_envs, settings.seed)
    print(f"{settings.env} on engine {engine}: {report.steps} control steps, {report.episodes} episodes")
    for group, counts in (("nonfinite", report.nonfinite), ("overflow", report.overflow)):
        for name, count in counts.items():
            print(f"{group}/{name:<12} {count}")
    print(f"largest |qvel|         {report.fastest:.1f} rad/s or m/s")
    print("stable" if report.stable else "NOT stable")
    return 0 if report.stable else 1


def load(argv: Sequence[str]) -> Settings:
    """The command line's words as types, checked."""
    settings = strict.settings(Settings(), argv)
    for key, low in (("steps", 1), ("num_envs", 1), ("seed", 0)):
        if getattr(settings, key) < low:
            raise UserError(f"{key} is {getattr(settings, key)}; it must be at least {low}")
    if settings.seed >= 2**32:
        raise UserError(f"seed is {settings.seed}; it must be below 2**32")
    return settings


if __name__ == "__main__":
    sys.exit(main())
