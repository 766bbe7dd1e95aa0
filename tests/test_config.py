"""Text to types: what is accepted, what is refused, and with which sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple, Optional

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

from mjxgym import config
from mjxgym.config import TrainConfig, UserError, env_config, flatten, load, merge, plain
from mjxgym.envs import ant

tasks = pytest.mark.parametrize("name", config.task_names())


def refusal(*argv: str) -> str:
    with pytest.raises(UserError) as caught:
        load(argv)
    return str(caught.value)


class Weights(NamedTuple):
    run: float = 1.0
    fall: float = -2.0


@dataclasses.dataclass(frozen=True)
class Part:
    size: tuple[float, float] = (0.0, 1.0)
    layers: tuple[int, ...] = (4,)
    limit: Optional[float] = None  # noqa: UP045
    on: bool = True
    count: int = 3
    weights: Weights = dataclasses.field(default=Weights())


@tasks
def test_every_yaml_fits_its_task_and_its_preset_too(name: str):
    for cpu in (False, True):
        task = config.task_config(name, cpu)
        task.check()
        assert task.task == name


@tasks
def test_a_config_is_hashable_and_equal_to_its_twin(name: str):
    assert hash(load([f"env={name}"])) == hash(load([f"env={name}"]))
    assert load([f"env={name}"]) == load([f"env={name}"])


@tasks
def test_a_saved_config_is_read_back_the_same(name: str, tmp_path: Path):
    asked = load([f"env={name}", "ppo.learning_rate=1e-3", "ppo.hidden=[8,8]", "wandb.tags=[a,b]", "seed=7"])
    config.save_run(asked, tmp_path)
    assert config.load_run(tmp_path) == asked


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


def test_a_mistake_in_a_yaml_names_the_file():
    with pytest.raises(UserError, match=r"configs/ant.yaml: env.deth_height .* ant.Config; did you mean death_height"):
        merge(config.task_config("ant"), {"env": {"deth_height": 1.0}}, "configs/ant.yaml")


def test_broken_yaml_is_one_sentence(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("task: [ant\n")
    assert "is not valid yaml" in refusal(f"resume={tmp_path}")
    (tmp_path / "config.yaml").write_text("task: gone\n")
    assert "'gone', which is not a task here" in refusal(f"resume={tmp_path}")


def test_merge_keeps_types():
    part = merge(Part(), {"size": [1, 2], "layers": [], "limit": 3, "weights": {"fall": -1}}, "test")
    assert part == Part(size=(1.0, 2.0), layers=(), limit=3.0, weights=Weights(fall=-1.0))
    assert isinstance(part.size[0], float)
    assert isinstance(part.weights.fall, float)
    assert merge(part, plain(Part()), "test") == Part()
    assert merge(part, {"weights": Weights(run=9.0)}, "test").weights.run == 9.0


@pytest.mark.parametrize(
    "changes",
    [{"size": 1}, {"size": "ab"}, {"layers": [1.5]}, {"limit": "x"}, {"on": 1}, {"count": True}, {"weights": [1, 2]}],
)
def test_merge_refuses_other_types(changes: dict):
    with pytest.raises(UserError, match=f"test: {next(iter(changes))} is"):
        merge(Part(), changes, "test")


def test_plain_is_what_yaml_can_hold():
    leaves = flatten(plain(load(["env=ant"]))).values()
    assert {type(leaf) for leaf in leaves} <= {int, float, str, bool, list, type(None)}


def test_library_use_leaves_hydra_alone():
    groups = dict(ConfigStore.instance().repo)
    made = env_config("ant", weights={"effort": -0.1}, **{"weights.death": -3.0}, episode_length=5)
    assert (made.weights.effort, made.weights.death, made.episode_length) == (-0.1, -3.0, 5)
    assert not GlobalHydra.instance().is_initialized()
    assert dict(ConfigStore.instance().repo) == groups


def test_library_mistakes_are_value_errors_with_the_nearest_name():
    with pytest.raises(ValueError, match="did you mean episode_length"):
        env_config("ant", episode_lenght=5)
    with pytest.raises(ValueError, match="did you mean ant"):
        env_config("an")


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
    [("num_envs=16", "num_envs=8"), ("ppo.learning_rate=1e-3", "ppo.learning_rate=0.0003"), ("env=ant", "cartpole")],
)
def test_resume_refuses_what_would_be_another_run(saved: Path, word: str, part: str):
    said = refusal(f"resume={saved}", word)
    assert word in said
    assert part in said


def test_resume_auto_starts_afresh_where_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert load(["env=cartpole", "resume=auto"]).resume is None
