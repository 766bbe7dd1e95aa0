"""Bang-bang controls break no model, and the command says so."""

from __future__ import annotations

import importlib.util

import mujoco
import pytest

from mjxgym import envs, physics, stability

every_task = pytest.mark.parametrize("name", envs.task_names())


@every_task
def test_bang_bang_on_engine_c(name):
    module = envs.task(name)
    report = stability.shake(module.make(module.Config(), "c"), steps=20_000, num_envs=200)
    assert report.steps == 20_000
    assert report.stable, report


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", pytest.param("warp", marks=pytest.mark.sample)])
@every_task
def test_bang_bang_on_the_other_engines(name, engine):
    if engine == "warp" and importlib.util.find_spec("warp") is None:
        pytest.skip("Warp is not installed")
    module = envs.task(name)
    report = stability.shake(module.make(module.Config(), engine), steps=400, num_envs=8)
    assert report.stable, report


@pytest.mark.slow
@pytest.mark.sample
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


@pytest.mark.parametrize(
    ("argv", "message"),
    [(["engin=c"], "did you mean engine?"), (["steps=many"], "whole number"), (["steps=0"], "steps is 0"),
     (["seed=-1"], "seed is -1"), (["env=antt"], "did you mean ant?"), (["engine=wrap"], "did you mean warp?")],
)  # fmt: skip
def test_a_wrong_setting_is_one_sentence_and_exit_code_two(argv, message, capsys):
    assert stability.main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said
    assert said.count("\n") == 1
