"""The Hydra command line: what it reaches, what it refuses in which words, and what a resumed run may change."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.global_hydra import GlobalHydra

from mjxgym import config
from mjxgym.command_line import load
from mjxgym.config import TrainConfig
from mjxgym.envs import ant
from mjxgym.strict import UserError


def refusal(*argv: str) -> str:
    with pytest.raises(UserError) as caught:
        load(argv)
    return str(caught.value)


def test_the_command_line_reaches_every_depth():
    asked = load(
        ["env=ant", "env.weights.effort=-0.1", "env.target=[5,1]", "ppo.learning_rate=1e-3", "ppo.hidden=[32,32]",
         "ppo.max_grad_norm=0.5", "num_envs=8"]
    )  # fmt: skip
    assert isinstance(asked, TrainConfig)
    assert asked.env == ant.Config(weights=ant.Config().weights._replace(effort=-0.1), target=(5.0, 1.0))
    assert (asked.ppo.learning_rate, asked.ppo.hidden, asked.ppo.max_grad_norm) == (1e-3, (32, 32), 0.5)
    assert asked.num_envs == 8
    assert load(["env=ant", "env.weights={effort: -0.1}"]).env.weights.effort == -0.1


def test_the_cpu_preset_applies_and_gives_way_to_what_is_said():
    small, full = config.task_config("ant", cpu=True), config.task_config("ant")
    assert load(["env=ant"]).num_envs == small.num_envs < full.num_envs
    assert load(["env=ant", f"num_envs={full.num_envs}"]).num_envs == full.num_envs
    line = config.cpu_preset(load(["env=ant"]))
    assert line is not None
    assert f"num_envs={full.num_envs}" in line
    assert "\n" not in line
    assert config.cpu_preset(full) is None


def test_one_and_seven_worlds_are_enough():
    assert load(["env=ant", "num_envs=1", "ppo.num_minibatches=1"]).num_envs == 1
    assert load(["env=ant", "num_envs=7", "ppo.num_minibatches=7"]).num_envs == 7


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        ([], ["env is missing", "env=NAME", "cartpole"]),
        (["seed=3"], ["env is missing"]),
        (["resume=auto"], ["env is missing"]),
        (["resume=null"], ["env is missing"]),
        (["env=an"], ["env=an is not a task", "did you mean ant?", "cartpole"]),
        (["env=ant", "num_env=3"], ["command line", "num_env ", "did you mean num_envs?"]),
        (["env=ant", "learning_rate=1"], ["did you mean ppo.learning_rate?"]),
        (["env=ant", "ppo.learning_rat=1"], ["did you mean ppo.learning_rate?"]),
        (["env=ant", "env.weights.efort=1"], ["did you mean env.weights.effort?"]),
        (["env=ant", "env.weights={efort: 1}"], ["did you mean env.weights.effort?"]),
        (["env=ant", "task=cartpole"], ["task is not a setting"]),
        (["env=ant", "+new=1"], ["adds or removes a key"]),
        (["env=ant", "~seed"], ["adds or removes a key"]),
        (["env=ant", "num_envs"], ["'num_envs' is not a setting of the form key=value"]),
        (["env=ant", "num_envs="], ["num_envs is ''", "whole number"]),
        (["env=ant", "num_envs=1.5"], ["num_envs is 1.5", "whole number"]),
        (["env=ant", "num_envs=true"], ["num_envs is True", "whole number"]),
        (["env=ant", "num_envs=0"], ["num_envs is 0"]),
        (["env=ant", "num_envs=-1"], ["num_envs is -1"]),
        (["env=ant", "num_envs=4097"], ["4097", "ppo.num_minibatches=2"]),
        (["env=ant", "iterations=0"], ["iterations is 0", "at least 1"]),
        (["env=ant", "ppo.learning_rate=abc"], ["ppo.learning_rate is 'abc'", "a number"]),
        (["env=ant", "ppo.learning_rate=-1"], ["ppo.learning_rate is -1"]),
        (["env=ant", "env.target=[1]"], ["env.target is [1]", "list of 2"]),
        (["env=ant", "ppo=3"], ["ppo is 3"]),
        (["env=ant", "wandb.mode=on"], ["disabled, online, offline"]),
        (["env=ant", "seed=1,2"], ["seed=1,2 is a sweep", "-m"]),
        (["env=ant", "resume=/no/such/run"], ["/no/such/run is not a run folder"]),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(argv: list[str], parts: list[str]):
    said = refusal(*argv)
    assert "\n" not in said
    for part in parts:
        assert part in said


def test_load_leaves_hydra_as_it_was():
    load(["env=cartpole"])
    assert not GlobalHydra.instance().is_initialized()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    config.save_run(load(["env=cartpole", "num_envs=8", "engine=c", "seed=5"]), tmp_path)
    return tmp_path


def test_resume_uses_what_was_saved_but_may_go_on_longer(saved: Path):
    going_on = load([f"resume={saved}", "iterations=77", "num_envs=8"])
    assert (going_on.task, going_on.num_envs, going_on.seed, going_on.engine) == ("cartpole", 8, 5, "c")
    assert (going_on.iterations, going_on.resume, going_on.run_dir) == (77, str(saved), str(saved))


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("num_envs=16", "num_envs=8"),
        ("ppo.learning_rate=1e-3", "ppo.learning_rate=0.0003"),
        ("env=ant", "cartpole"),
        ("env.episode_length=7", "env.episode_length=500"),
        ("sed=5", "did you mean seed?"),
    ],
)
def test_resume_refuses_what_would_be_another_run(saved: Path, word: str, part: str):
    said = refusal(f"resume={saved}", word)
    assert word.partition("=")[0] in said
    assert part in said


def test_resume_auto_starts_afresh_where_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert load(["env=cartpole", "resume=auto"]).resume is None
