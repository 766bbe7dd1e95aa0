"""Bang-bang controls break no model, and the command says so."""

from __future__ import annotations

import dataclasses
import importlib.util

import mujoco
import pytest

from mjxgym import envs, physics, stability
from mjxgym.stability import Settings

every_task = pytest.mark.parametrize("name", envs.task_names())


@every_task
def test_bang_bang_on_engine_c(name):
    module = envs.task(name)
    report = stability.shake(module.make(module.Config(), "c"), steps=20_000, num_envs=200)
    assert report.steps == 20_000
    assert report.stable, report


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", "warp"])
@every_task
def test_bang_bang_on_the_other_engines(name, engine):
    if engine == "warp" and importlib.util.find_spec("warp") is None:
        pytest.skip("Warp is not installed")
    module = envs.task(name)
    report = stability.shake(module.make(module.Config(), engine), steps=400, num_envs=8)
    assert report.stable, report


@pytest.mark.slow
def test_it_finds_an_unstable_model():
    # Limbs with too little armature for the time step; a tenth of what models/ant has.
    module = envs.task("ant")
    env = module.make(module.Config(), "c")
    spec = mujoco.MjSpec.from_file(str(physics.models_dir() / "ant" / "ant.xml"))
    for joint in spec.joints:
        joint.armature = 0.0 if joint.type == mujoco.mjtJoint.mjJNT_FREE else 0.003
    report = stability.shake(env.replace(physics=physics.load(spec.compile(), "c")), steps=20_000, num_envs=200)
    assert report.nonfinite["diverged"] > 0
    assert not report.stable


def test_settings_are_key_equals_value():
    assert stability.parse(["env=cartpole", "steps=5", "num_envs=2"]) == dataclasses.replace(
        Settings(), env="cartpole", steps=5, num_envs=2
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["engin=c"], "did you mean engine=?"), (["steps=many"], "whole number"), (["steps=0"], "too small"),
     (["env=antt"], "did you mean ant?"), (["engine=d"], "engine=")],
)  # fmt: skip
def test_a_wrong_setting_is_one_sentence_and_exit_code_two(arguments, message, capsys):
    assert stability.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
