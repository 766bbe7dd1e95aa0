"""`python -m mjxgym.export`: from a run folder to a file that says and does what the policy does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from gru import Recurrent
from jax import export as jax_export

from mjxgym import checkpoint, config, envs, export, onnx_graph, ppo, train
from mjxgym.actor import Actor
from mjxgym.build import Policy
from mjxgym.ppo.normalise import moments, normalise, update
from mjxgym.strict import UserError

OBS = np.random.default_rng(0).normal(size=(50, 60)).astype(np.float32) * np.float32(2.0)


def trained(folder: Path, *words: str) -> Path:
    """A run folder."""
    settings = ["env=ant", "engine=c", "num_envs=8", "ppo.num_steps=8", "ppo.num_epochs=1", "ppo.hidden=[16,8]"]
    assert (
        train.main([*settings, "eval.at_end=false", "video.at_end=false", "iterations=2", f"run_dir={folder}", *words])
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def path(run_dir: Path) -> Path:
    """Its policy."""
    assert export.main([f"run={run_dir}"]) == 0
    return run_dir / "policy.onnx"


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert export.main(argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    return said.err


def session_of(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def metadata_of(path: Path) -> dict[str, Any]:
    text = session_of(path).get_modelmeta().custom_metadata_map
    plain = ("format", "task", "engine", "checkpoint", "trained_in")
    return {key: value if key in plain else json.loads(value) for key, value in text.items()}


def mean_action(run_dir: Path, obs: np.ndarray, name: str = "best") -> np.ndarray:
    """What the run's policy does, by the functions that `mjxgym.evaluate` uses."""
    built, saved = train.build(config.load_run(run_dir))
    shapes = jax.eval_shape(lambda: ppo.init(built.vec, built.net, saved.ppo, saved.num_envs, jax.random.key(0)))
    target = Policy(shapes.params, shapes.obs_stats)
    policy, _ = checkpoint.restore(run_dir / config.CHECKPOINTS / name, target, saved.task)
    seen = normalise(policy.obs_stats, jnp.asarray(obs), saved.ppo.obs_clip)
    return np.clip(built.net.step(policy.params, seen, ())[0].mean, -1.0, 1.0)


def test_the_file_does_what_evaluation_does(run_dir: Path, path: Path):
    session, expected = session_of(path), mean_action(run_dir, OBS)
    assert [(one.name, one.shape) for one in session.get_inputs()] == [("obs", ["batch", 60])]
    assert [(one.name, one.shape) for one in session.get_outputs()] == [("action", ["batch", 8])]
    for size in (1, 3, 50):
        [action] = session.run(None, {"obs": OBS[:size]})
        np.testing.assert_allclose(action, expected[:size], atol=1e-5)
    assert np.std(expected) > 0.01


def test_the_file_says_what_a_controller_has_to_know(path: Path):
    about, env = metadata_of(path), envs.task("ant").make(envs.task("ant").Config(), "c")
    assert (about["format"], about["format_version"]) == ("mjxgym policy", 1)
    assert (about["task"], about["engine"], about["seed"], about["iteration"]) == ("ant", "c", 42, 2)
    assert (about["checkpoint"], about["trained_in"]) == ("best", "float32")
    assert (about["sim_dt"], about["substeps"]) == (0.0083, 2)
    assert about["control_dt"] == pytest.approx(0.0166)
    assert [(one["name"], one["size"]) for one in about["observation"]["terms"]] == list(env.obs_names)
    assert about["observation"]["clip"] == 5.0
    names = ["hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3", "hip_4", "ankle_4"]
    assert [one["name"] for one in about["joints"]] == names
    assert [(one["name"], one["target"], one["gear"][0]) for one in about["actuators"]] == [
        (name, name, 15.0) for name in names
    ]
    assert (about["action"]["low"], about["action"]["high"]) == (-1.0, 1.0)
    assert (about["action"]["scale"], about["action"]["offset"]) == ([1.0] * 8, [0.0] * 8)
    assert about["env"]["death_height"] == 0.31
    assert about["versions"]["mujoco"] == "3.17.0"
    assert about["carry"] == []


def test_the_critic_stays_at_home(path: Path, run_dir: Path):
    names = {one.name for one in onnx.load(path).graph.initializer}
    assert "params.params.actor.Dense_1.kernel" in names
    assert not any(word in name for name in names for word in ("critic", "value", "log_std"))


def test_the_summary_says_what_goes_in_and_how_near_it_is(run_dir, tmp_path, capsys):
    assert export.main([f"run={run_dir}", f"out={tmp_path}/p.onnx", "checkpoint=last"]) == 0
    said = capsys.readouterr().out
    for part in ("ant, last checkpoint (iteration 2)", "obs [batch, 60]", "action [batch, 8]", "at 100 std", "p.onnx"):
        assert part in said
    assert [one.name for one in tmp_path.iterdir()] == ["p.onnx"]


def test_stablehlo_does_the_same_and_has_its_metadata_beside_it(run_dir: Path, path: Path, tmp_path: Path):
    out = tmp_path / "policy.stablehlo"
    assert export.main([f"run={run_dir}", f"out={out}"]) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["policy.stablehlo", "policy.stablehlo.json"]
    loaded = jax_export.deserialize(bytearray(out.read_bytes()))
    assert loaded.platforms == ("cpu", "cuda")
    for size in (1, 50):
        [action] = loaded.call(OBS[:size])
        np.testing.assert_allclose(action, mean_action(run_dir, OBS[:size]), atol=1e-5)
    assert json.loads(Path(f"{out}.json").read_text()) == metadata_of(path)
    assert "tensor<16x8xf32>" in loaded.mlir_module()
    assert "tensor<8x1xf32>" not in loaded.mlir_module()  # the value


def test_what_was_trained_in_bfloat16_goes_out_in_float32(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = trained(tmp_path / "run", "ppo.dtype=bfloat16", "ppo.separate_critic=true", "ppo.normalise_obs=false")
    capsys.readouterr()
    assert export.main([f"run={folder}"]) == 0
    assert "from it in bfloat16, as trained" in capsys.readouterr().out
    about = metadata_of(folder / "policy.onnx")
    assert about["trained_in"] == "bfloat16"
    assert 1e-4 < about["difference_from_trained"]["1"] < 0.1
    assert about["observation"]["clip"] is None
    [action] = session_of(folder / "policy.onnx").run(None, {"obs": OBS})
    rough = mean_action(folder, OBS)  # in bfloat16
    assert 1e-5 < np.max(np.abs(action - rough)) < 0.1
    settings = folder / config.CONFIG_FILE
    settings.write_text(settings.read_text().replace("bfloat16", "float32"))
    np.testing.assert_allclose(action, mean_action(folder, OBS), atol=1e-5)


def recurrent() -> tuple[Actor, Policy]:
    net, stats = Recurrent(12, 3), moments(OBS[0, :6])
    policy = Policy(net.init(jax.random.key(0), OBS[0, :6]), update(stats, OBS[:, :6], jnp.ones(50, bool)))
    return Actor(net, OBS[0, :6], True, 5.0), policy


@pytest.mark.parametrize("name", ["policy.onnx", "policy.stablehlo"])
def test_a_memory_is_carried_by_the_caller(tmp_path: Path, name: str):
    actor, policy = recurrent()
    assert max(export.save(tmp_path / name, actor, policy, {"task": "memory"}).values()) < 1e-5
    if name.endswith(".onnx"):
        session = session_of(tmp_path / name)
        assert [one.shape for one in session.get_inputs()] == [["batch", 6], ["batch", 12]]
        assert [one.name for one in session.get_outputs()] == ["action", "next_carry_0"]

        def step(obs, memory):
            return session.run(None, {"obs": obs, "carry_0": memory})
    else:
        step = jax_export.deserialize(bytearray((tmp_path / name).read_bytes())).call

    carry = memory = np.zeros((5, 12), np.float32)
    for obs in np.random.default_rng(1).normal(size=(20, 5, 6)).astype(np.float32) * 3.0:
        action, memory = step(obs, memory)
        output, carry = actor.net.step(policy.params, normalise(policy.obs_stats, obs, 5.0), carry)
        np.testing.assert_allclose(action, np.clip(output.mean, -1.0, 1.0), atol=1e-5)
        np.testing.assert_allclose(memory, carry, atol=1e-5)
    assert np.max(np.abs(memory)) > 0.1


def tampered(monkeypatch: pytest.MonkeyPatch, part: str, by: float) -> None:
    """A writer that gets one number of one initializer wrong."""
    right = onnx_graph.model

    def model(*args: Any) -> onnx.ModelProto:
        made = right(*args)
        [wrong] = [one for one in made.graph.initializer if one.name == part]
        array = onnx.numpy_helper.to_array(wrong).copy()
        array.flat[0] += by
        wrong.CopyFrom(onnx.numpy_helper.from_array(array, part))
        return made

    monkeypatch.setattr(onnx_graph, "model", model)


@pytest.mark.parametrize("by", [1e-3, np.nan])
@pytest.mark.parametrize("part", ["params.params.mean.bias", "obs_stats.mean"])
def test_a_file_that_does_otherwise_is_not_kept(run_dir, tmp_path, capsys, monkeypatch, part, by):
    tampered(monkeypatch, part, by)
    said = refusal(capsys, f"run={run_dir}", f"out={tmp_path}/policy.onnx")
    assert "differs from JAX's by" in said
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_leaves_the_older_file(run_dir, tmp_path, capsys, monkeypatch):
    (tmp_path / "policy.onnx").write_text("older")
    tampered(monkeypatch, "params.params.mean.bias", 1e-3)
    refusal(capsys, f"run={run_dir}", f"out={tmp_path}/policy.onnx")
    assert (tmp_path / "policy.onnx").read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_mistake_in_the_memory_shows_after_some_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    actor, policy = recurrent()
    tampered(monkeypatch, "params.params.GRUCell_0.hn.kernel", 1e-2)
    with pytest.raises(UserError, match="differs from JAX's by"):
        export.save(tmp_path / "policy.onnx", actor, policy, {})
    assert list(tmp_path.iterdir()) == []


def test_agreement_is_within_a_hundred_thousandth():
    actor, _ = recurrent()
    export.check({1: 0.9e-5, 100: 1e-5}, actor.tolerances)
    for bad in (1.1e-5, np.nan, np.inf):
        for found in ({1: 0.0, 100: bad}, {1: bad, 100: 0.0}):
            with pytest.raises(UserError, match="more than 1e-05"):
                export.check(found, actor.tolerances)


def test_a_policy_that_is_not_finite_is_refused(run_dir, tmp_path, capsys, monkeypatch):
    restore = checkpoint.restore
    monkeypatch.setattr(
        checkpoint, "restore", lambda *args: (jax.tree.map(lambda x: x * np.nan, restore(*args)[0]), {})
    )
    assert "not finite" in refusal(capsys, f"run={run_dir}", f"out={tmp_path}/policy.onnx")


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ([], "run is missing"),
        (["runs"], "'runs' is not a setting"),
        (["run=x", "chekpoint=best"], "did you mean checkpoint?"),
        (["run=x", "checkpoint=worst"], "best, last"),
        (["run=/no/such"], "/no/such is not a run folder"),
        (["run=x", "out=policy.pt"], ".onnx or .stablehlo"),
        (["run=x", "out=policy"], ".onnx or .stablehlo"),
    ],
)
def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str], argv: list[str], part: str):
    assert part in refusal(capsys, *argv)


def test_a_place_that_cannot_be_written_is_named(run_dir, tmp_path, capsys, monkeypatch):
    assert f"there is no folder {tmp_path}/no" in refusal(capsys, f"run={run_dir}", f"out={tmp_path}/no/p.onnx")
    (tmp_path / "p.onnx").mkdir()
    assert "is a folder" in refusal(capsys, f"run={run_dir}", f"out={tmp_path}/p.onnx")

    def full(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(onnx, "save", full)
    assert "No space left" in refusal(capsys, f"run={run_dir}", f"out={tmp_path}/q.onnx")
    assert [one.name for one in tmp_path.iterdir()] == ["p.onnx"]


def test_a_run_without_checkpoint_is_named(run_dir, tmp_path, capsys):
    (tmp_path / config.CONFIG_FILE).write_text((run_dir / config.CONFIG_FILE).read_text())
    assert "there is no checkpoint at" in refusal(capsys, f"run={tmp_path}")
    (tmp_path / config.CHECKPOINTS / "best").mkdir(parents=True)
    assert "damaged or incomplete" in refusal(capsys, f"run={tmp_path}")
    assert not (tmp_path / "policy.onnx").exists()


@pytest.mark.parametrize(
    ("package", "name"), [("onnx", "p.onnx"), ("onnxruntime", "p.onnx"), ("flatbuffers", "p.stablehlo")]
)
def test_a_package_that_is_missing_is_named(capsys, monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    said = refusal(capsys, "run=x", f"out={name}")
    assert f"needs the package {package}: pip install -e '.[export]'" in said


def test_an_operation_that_onnx_has_no_rule_for_is_one_sentence(run_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(onnx_graph.RULES, "dot_general")
    said = refusal(capsys, f"run={run_dir}", f"out={tmp_path}/p.onnx")
    assert "dot_general" in said
    assert "out=policy.stablehlo" in said
    assert list(tmp_path.iterdir()) == []
