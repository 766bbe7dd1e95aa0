"""Settings as types: tasks, presets, run files, and what `make` lets through."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

import mjxgym
from mjxgym import config, envs
from mjxgym.config import env_config
from mjxgym.strict import UserError, flatten, merge, plain

tasks = pytest.mark.parametrize("name", config.task_names())


def test_tasks_are_the_modules_with_a_config_and_make():
    assert {"ant", "cartpole"} <= set(envs.task_names())
    for name in envs.task_names():
        assert envs.task(name).make
        assert envs.task(name).Config()
    for shared in ("faults", "observe", "rewards", "__init__"):
        with pytest.raises(ValueError, match=f"env={shared} is not a task; the tasks are"):
            envs.task(shared)


def test_every_task_has_settings_and_can_be_listed():
    assert mjxgym.list_envs() == config.task_names() == envs.task_names()


@tasks
def test_every_yaml_fits_its_task_and_its_preset_too(name: str):
    for cpu in (False, True):
        task = config.task_config(name, cpu)
        task.check()
        assert task.task == name


@tasks
def test_a_config_is_hashable_and_equal_to_its_twin(name: str):
    assert hash(config.task_config(name)) == hash(config.task_config(name))
    assert config.task_config(name) == config.task_config(name)


@tasks
def test_a_saved_config_is_read_back_the_same(name: str, tmp_path: Path):
    changes = {"ppo": {"learning_rate": 1e-3, "hidden": [8, 8]}, "wandb": {"tags": ["a", "b"]}, "seed": 7}
    asked = merge(config.task_config(name), changes, "test")
    config.save_run(asked, tmp_path)
    assert config.load_run(tmp_path) == asked


def test_broken_yaml_is_one_sentence(tmp_path: Path):
    for text, said in (("task: [ant\n", "is not valid yaml"), ("task: gone\n", "'gone', which is not a task here"),
                       ("- ant\n", "must be a list of key: value")):  # fmt: skip
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(UserError, match=said) as caught:
            config.load_run(tmp_path)
        assert "\n" not in str(caught.value)


def test_a_mistake_in_a_yaml_names_the_file():
    with pytest.raises(UserError, match=r"configs/ant.yaml: env.deth_height .* ant.Config; did you mean death_height"):
        merge(config.task_config("ant"), {"env": {"deth_height": 1.0}}, "configs/ant.yaml")


def test_plain_is_what_yaml_can_hold():
    leaves = flatten(plain(config.task_config("ant"))).values()
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


def test_settings_that_have_changed_since_a_run_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = config.task_config("cartpole")
    config.save_run(dataclasses.replace(before, seed=7), tmp_path)
    assert config.changed_since(tmp_path, "cartpole") is None  # what the run asked for is no change
    after = {False: before, True: config.task_config("cartpole", cpu=True)}
    after = {cpu: dataclasses.replace(one, env=dataclasses.replace(one.env, max_pos=2.0)) for cpu, one in after.items()}
    after[True] = dataclasses.replace(after[True], num_envs=77)
    monkeypatch.setattr(config, "task_config", lambda task, cpu=False: after[cpu])
    said = config.changed_since(tmp_path, "cartpole")
    assert said == (
        "the settings of cartpole have changed since this run (env.max_pos was 3 and is 2, "
        f"cpu.num_envs was {before.num_envs} and is 77); the run's own are used"
    )
    assert config.load_run(tmp_path).env.max_pos == 3.0
    config.save_run(before, tmp_path)  # a resumed run still knows with what it began
    assert config.changed_since(tmp_path, "cartpole") == said
    (tmp_path / config.DEFAULTS_FILE).unlink()  # of a run from before there was such a file
    assert config.changed_since(tmp_path, "cartpole") is None
