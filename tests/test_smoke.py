"""The library and the commands as a newcomer meets them, small."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import mjxgym
from mjxgym import evaluate, measure, train


@pytest.mark.parametrize("name", mjxgym.list_envs())
def test_an_env_is_made_stepped_and_scanned(name: str):
    env = mjxgym.make(name, engine="c", episode_length=3)
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    starts, actions = reset(jax.random.split(jax.random.key(0), 4)), jnp.zeros((4, env.action_size))
    assert jnp.all(step(starts, actions).step_count == 1)

    def play(states: mjxgym.State, _: None) -> tuple[mjxgym.State, jax.Array]:
        states = step(states, actions)
        return mjxgym.reset_done(states, starts), states.reward

    states, rewards = jax.lax.scan(play, starts, length=5)
    assert rewards.shape == (5, 4)
    assert jnp.all(jnp.isfinite(rewards))
    assert jnp.all(states.step_count == 2)  # 3 steps, a new episode, 2 steps


def test_a_task_is_trained_and_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["env=cartpole", "engine=c", "num_envs=8", "ppo.num_steps=4", "ppo.hidden=[8]", "env.episode_length=20"]
    assert train.main([*words, "eval.at_end=false", "video.at_end=false", "iterations=2", f"run_dir={tmp_path}"]) == 0
    assert f"python -m mjxgym.evaluate run={tmp_path}" in capsys.readouterr().out
    assert evaluate.main([f"run={tmp_path}", "episodes=8"]) == 0
    assert "mean return" in capsys.readouterr().out
    assert json.loads((tmp_path / measure.RECORD).read_text())["iteration"] == 2
