"""Measure speed: python -m mjxgym.bench env=ant num_envs=4096 engine=warp

Takes the settings of mjxgym.train. Four loops over the same worlds, each with what the one before it lacks:

  physics   the engine alone: random actions, new worlds now and then, nothing computed from the result
  env       observations, rewards, ends of episodes and fresh starts
  rollout   the policy chooses the actions, and values what it sees
  training  the whole PPO iteration

Rates are medians over repeated calls after a warm-up; contacts are on, actions fresh at every step, resets included.
Prints a table and, last, one line of JSON. With --startup also how long a new process takes to its first iteration,
with empty and with filled compile caches. Exit code 2: it cannot be done as asked.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from rich.console import Console
from rich.table import Table

from mjxgym import cache, command_line, machine, ppo, strict, xla
from mjxgym.build import Built, build
from mjxgym.config import TrainConfig
from mjxgym.env import State, VecEnv, reset_done, select
from mjxgym.envs.faults import snapshot
from mjxgym.ppo.rollout import Worlds, rollout

REPEATS = 7
# Mean number of control steps a world of the physics loop lives: about what an episode of random actions lasts.
LIFETIME = 64


class Speed(NamedTuple):
    """What `bench` measures. Rates are per second of wall time, of all worlds together."""

    physics_steps_per_second: float
    env_steps_per_second: float
    rollout_steps_per_second: float
    training_steps_per_second: float
    training_over_physics: float  # share of the bare physics rate that training reaches; of its time, physics
    env_share: float  # of the time of a training iteration: observations, rewards, resets
    policy_share: float  # acting and valuing
    update_share: float
    compile_seconds: float  # the training call, caches as they are
    bytes_per_env: float  # device memory at its peak, training included


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    xla.tune()
    return strict.exit_code(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """Measure, print."""
    if any(word in ("-h", "--help") for word in argv):
        print(__doc__)
        return 0
    words = [word for word in argv if word != "--startup"]
    # First, while this process has taken no device memory.
    started = startup(words) if len(words) < len(argv) else {}
    wanted = command_line.load(words)
    cache.enable()
    built, settings = build(wanted)
    report: dict[str, Any] = {
        "env": settings.task,
        "engine": settings.engine,
        "num_envs": settings.num_envs,
        "substeps": settings.env.substeps,
        **measure(built, settings)._asdict(),
        **started,
        "machine": machine.record(settings.engine),
    }
    Console(highlight=False, soft_wrap=True).print(table(report))
    print(json.dumps(report))
    return 0


def measure(built: Built, settings: TrainConfig) -> Speed:
    """Time the four loops."""
    vec, steps, calls = built.vec, settings.ppo.num_steps, settings.iterations_per_call
    key = jax.random.key(settings.seed)
    began = time.perf_counter()
    ts = ppo.init(built.vec, built.net, settings.ppo, settings.num_envs, key)
    train = ppo.train_many.lower(vec, built.net, settings.ppo, ts, calls, calls, snapshot).compile()
    compile_seconds = time.perf_counter() - began
    control_steps = settings.num_envs * steps

    # Training first: it leaves worlds and a policy as they are in the middle of learning.
    trained = [ts]

    def train_once() -> Any:
        trained[0], *found = train(vec, trained[0], calls)
        return found

    training = seconds(train_once) / calls
    ts = trained[0]
    rolled = seconds(partial(jax.jit(partial(_rollout, built, settings)), vec, ts, key))
    stepped = seconds(partial(jax.jit(partial(_env_loop, steps)), vec, ts.states, key))
    moved = seconds(partial(jax.jit(partial(_physics_loop, steps * calls)), vec, ts.states, key)) / calls
    return Speed(
        physics_steps_per_second=control_steps * settings.env.substeps / moved,
        env_steps_per_second=control_steps / stepped,
        rollout_steps_per_second=control_steps / rolled,
        training_steps_per_second=control_steps / training,
        training_over_physics=moved / training,
        env_share=(stepped - moved) / training,
        policy_share=(rolled - stepped) / training,
        update_share=(training - rolled) / training,
        compile_seconds=compile_seconds,
        bytes_per_env=peak_bytes(train) / settings.num_envs,
    )


def _physics_loop(num_steps: int, vec: VecEnv, states: State, key: Array) -> Array:
    env: Any = vec.env
    num_envs = states.step_count.shape[0]
    dies_at = jax.random.randint(key, (num_envs,), 0, LIFETIME)

    def step(data: Any, inputs: tuple[Array, Array]) -> tuple[Any, None]:
        now, step_key = inputs
        action = jax.random.uniform(step_key, (num_envs, env.action_size), minval=-1.0)
        data = jax.vmap(lambda data, ctrl: env.physics.advance(data, ctrl, env.config.substeps))(data, action)
        return select(dies_at == now % LIFETIME, states.data, data), None

    inputs = jnp.arange(num_steps), jax.random.split(key, num_steps)
    data, _ = jax.lax.scan(step, states.data, inputs)
    return jnp.sum(data.qpos)


def _env_loop(num_steps: int, vec: VecEnv, states: State, key: Array) -> Array:
    num_envs = states.step_count.shape[0]
    fresh = vec.reset(jax.random.split(key, num_envs))

    def step(states: State, step_key: Array) -> tuple[State, Array]:
        states = vec.step(states, jax.random.uniform(step_key, (num_envs, vec.env.action_size), minval=-1.0))
        return reset_done(states, fresh), jnp.sum(states.reward)

    states, rewards = jax.lax.scan(step, states, jax.random.split(key, num_steps))
    return jnp.sum(rewards) + sum(jnp.sum(leaf) for leaf in jax.tree.leaves(states.obs))


def _rollout(built: Built, settings: TrainConfig, vec: VecEnv, ts: ppo.TrainState, key: Array) -> Any:
    fresh = vec.reset(jax.random.split(key, settings.num_envs))
    worlds = Worlds(ts.states, ts.carry, ts.tally)
    return rollout(vec, built.net, settings.ppo, ts.params, ts.obs_stats, worlds, fresh, key)[1:]


def seconds(call: Callable[[], Any]) -> float:
    """Median wall time of `call`, its result waited for, after two calls that do not count."""
    times = []
    for _ in range(2 + REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def peak_bytes(compiled: Any) -> float:
    """Device memory of a compiled call: arguments, results and scratch; and Warp's own, where it is at work."""
    memory = compiled.memory_analysis()
    total = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    total += memory.temp_size_in_bytes
    if "warp" in sys.modules and jax.default_backend() == "gpu":
        import warp as wp

        total += wp.get_mempool_used_mem_high("cuda:0")
    return float(total)


def startup(words: Sequence[str]) -> dict[str, float]:
    """Seconds from the start of a process that trains to the end of its first iteration, caches empty and filled."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"MJXGYM_CACHE": str(Path(scratch, "cache"))}
        environment.pop("WARP_CACHE_PATH", None)
        for name in ("startup_cold_seconds", "startup_warm_seconds"):
            run_dir = Path(scratch, name)
            command = [sys.executable, "-m", "mjxgym.train", *words, "iterations=1", f"run_dir={run_dir}"]
            began = time.time()
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            found[name] = (run_dir / "metrics.csv").stat().st_mtime - began
    return found


def table(report: dict[str, Any]) -> Table:
    """The report for people."""
    shown = Table(title=f"{report['env']}, engine {report['engine']}, {report['num_envs']} envs, {machine.device()}")
    shown.add_column("measure")
    shown.add_column("value", justify="right")
    for name, value in report.items():
        if not isinstance(value, float):
            continue
        text = f"{value:,.0f}" if value >= 100 else f"{value:.3f}"
        shown.add_row(name.replace("_", " "), text)
    return shown


if __name__ == "__main__":
    sys.exit(main())
