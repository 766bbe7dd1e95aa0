"""`examples/ant_onnx.py`: an exported ant in plain MuJoCo, where neither JAX nor mjxgym can be imported."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from gru import Recurrent

from mjxgym import envs, export, metadata, physics, train
from mjxgym.actor import Actor
from mjxgym.build import Policy

EXAMPLE = Path(__file__).parents[1] / "examples" / "ant_onnx.py"
MODEL = physics.models_dir() / "ant" / "ant.xml"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy of a tiny run."""
    folder = tmp_path_factory.mktemp("ant") / "run"
    words = ["env=ant", "engine=c", "num_envs=8", "ppo.num_steps=8", "ppo.num_epochs=1", "ppo.hidden=[16,8]"]
    assert (
        train.main(
            [
                *words,
                "eval.at_end=false",
                "video.at_end=false",
                "env.episode_length=40",
                "iterations=1",
                f"run_dir={folder}",
            ]
        )
        == 0
    )
    assert export.main([f"run={folder}"]) == 0
    return folder / "policy.onnx"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ant_onnx", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def alone(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with these words, unable to import either."""
    for name in ("jax", "jaxlib", "flax", "mjxgym"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(f"raise ImportError('{name} is not for examples')")
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=120, check=False
    )


def test_it_runs_without_jax_and_mjxgym(path: Path, tmp_path: Path):
    assert "jax is not for examples" in alone(tmp_path, "-c", "import jax").stderr
    assert "mjxgym is not for examples" in alone(tmp_path, "-c", "import mjxgym").stderr
    run = (str(EXAMPLE), str(path), str(MODEL), "--steps", "100", "--seed")
    done = alone(tmp_path, *run, "3")
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"episode (\d+): (\d+) steps, (-?[\d.]+) m, (-?[\d.]+) m/s, (fell|still up)", done.stdout)
    assert [int(line[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert sum(int(line[1]) for line in lines) == 100
    assert all(int(line[1]) <= 40 for line in lines)  # the run's own time limit
    assert alone(tmp_path, *run, "3").stdout == done.stdout
    assert alone(tmp_path, *run, "4").stdout != done.stdout


def test_another_model_is_refused(path: Path, tmp_path: Path):
    done = alone(tmp_path, str(EXAMPLE), str(path), str(physics.models_dir() / "cartpole" / "cartpole.xml"))
    assert done.returncode == 2
    assert "does not fit" in done.stderr


@pytest.mark.parametrize("wrapped", [True, False])
def test_it_sees_and_does_what_the_task_does(path: Path, example: ModuleType, wrapped: bool):
    env = envs.task("ant").make(envs.task("ant").Config(wrap_angles=wrapped), "c")
    about: dict[str, Any] = example.Policy(str(path)).about
    about["env"]["wrap_angles"] = wrapped
    ant = example.Ant(mujoco.MjModel.from_xml_path(str(MODEL)), about)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for seed in range(3):
        state = reset(jax.random.key(seed))
        mujoco.mj_resetData(ant.model, ant.data)
        ant.data.qpos[:], ant.data.qvel[:] = state.data.qpos, state.data.qvel
        mujoco.mj_forward(ant.model, ant.data)
        np.testing.assert_allclose(ant.observe(np.zeros(8)), state.obs, rtol=1e-5, atol=1e-5)
        rng = np.random.default_rng(seed)
        for _ in range(60):
            action = rng.uniform(-1.0, 1.0, 8).astype(np.float32)
            state = step(state, jnp.asarray(action))
            ant.data.ctrl[:] = action
            mujoco.mj_step(ant.model, ant.data, nstep=about["substeps"])
            np.testing.assert_allclose(ant.observe(action), state.obs, rtol=1e-5, atol=1e-5)
            assert ant.fallen() == bool(state.terminated)
    assert np.max(np.abs(state.data.sensordata)) > 1.0  # the feet bore weight


def test_it_starts_where_the_task_starts(path: Path, example: ModuleType):
    ant = example.Ant(mujoco.MjModel.from_xml_path(str(MODEL)), example.Policy(str(path)).about)
    rng, starts = np.random.default_rng(0), []
    for _ in range(300):
        ant.reset(rng)
        starts.append(np.concatenate([ant.data.qpos, ant.data.qvel]))
    env = envs.task("ant").make(envs.task("ant").Config(), "c")
    data = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 300)).data
    expected = np.concatenate([data.qpos, data.qvel], axis=1)
    for measure in (np.min, np.max, np.mean):
        np.testing.assert_allclose(measure(starts, axis=0), measure(expected, axis=0), atol=0.03)


def test_its_actions_are_the_policys(path: Path, example: ModuleType):
    policy = example.Policy(str(path))
    obs = np.random.default_rng(0).normal(size=60)
    action = policy(obs)
    assert action.shape == (8,)
    np.testing.assert_array_equal(policy.ctrl(action), action.astype(np.float64))
    about = policy.about["action"]
    about["scale"], about["offset"] = [0.5] * 8, [0.25] * 8
    np.testing.assert_allclose(policy.ctrl(np.full(8, 3.0)), 0.75)


def test_its_memory_begins_anew_with_each_episode(example: ModuleType, tmp_path: Path):
    actor = Actor(Recurrent(4, 2), jnp.zeros(3), False, 5.0)
    weights = Policy(actor.net.init(jax.random.key(0), jnp.zeros(3)), None)
    export.save(tmp_path / "p.onnx", actor, weights, metadata.signature(actor, 2))
    policy, obs = example.Policy(str(tmp_path / "p.onnx")), np.ones(3, np.float32)
    expected, carry = [], actor.net.initial_carry((1,))
    for _ in range(3):
        output, carry = actor.net.step(weights.params, obs[None], carry)
        expected.append(np.clip(output.mean[0], -1.0, 1.0))
    for _ in range(2):
        policy.reset()
        np.testing.assert_allclose([policy(obs) for _ in range(3)], expected, atol=1e-5)
    assert np.max(np.abs(expected[0] - expected[2])) > 1e-3
