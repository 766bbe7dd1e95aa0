"""`python -m mjxgym.evaluate`: from a run folder to a table and a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mjxgym import command_line, config, evaluate, measure, train


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    words = ["env=cartpole", "engine=c", "num_envs=8", "ppo.num_steps=8", "ppo.hidden=[8]", "ppo.num_epochs=1"]
    words += ["env.episode_length=30", "iterations=3", "eval.at_end=false", "video.at_end=false", f"run_dir={folder}"]
    assert train.main(words) == 0
    return folder


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert evaluate.main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


def test_a_run_is_measured_shown_and_recorded(run_dir: Path, capsys: pytest.CaptureFixture[str]):
    assert evaluate.main([f"run={run_dir}", "episodes=16", "checkpoint=last"]) == 0
    said = capsys.readouterr().out
    for part in ("mean return", "median", "terminated", "truncated", "quarantined", "reward/alive", "engine c"):
        assert part in said
    assert "kept" not in said  # of what?
    written = records(run_dir)[-1]
    assert (written["task"], written["engine"], written["iteration"], written["episodes"]) == ("cartpole", "c", 3, 16)
    assert (written["checkpoint"], written["trained_on"]) == ("last", "c")
    assert sum(written[share] for share in ("terminated", "truncated", "quarantined")) == pytest.approx(1.0)
    weighted = sum(term["weighted"] for term in written["terms"])
    assert weighted == pytest.approx(written["return_mean"], abs=1e-3)  # the terms make up the return
    assert written["length_mean"] <= 30


def test_engines_stand_side_by_side(run_dir: Path, capsys: pytest.CaptureFixture[str]):
    """The same starts on both, so that a policy which has learned little from its engine keeps nearly all."""
    before = len(records(run_dir))
    assert evaluate.main([f"run={run_dir}", "episodes=16", "engine=c,jax"]) == 0
    said = capsys.readouterr().out
    for part in ("engine c", "engine jax", "kept of engine c's"):
        assert part in said
    first, second = records(run_dir)[before:]
    assert (first["engine"], second["engine"]) == ("c", "jax")
    # float32 against float64 over 30 steps of an untrained policy: ends may differ by a step in a few episodes.
    assert second["return_mean"] == pytest.approx(first["return_mean"], rel=0.02)


def records(folder: Path) -> list[dict]:
    path = folder / measure.RECORD
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_what_is_kept_is_marked_where_it_is_too_little():
    assert evaluate.share(measure.Kept(0.85, 0.02)) == "85 ± 2 %, less than 90 %"
    assert evaluate.share(measure.Kept(0.95, 0.02)) == "95 ± 2 %"
    assert "≤ 0" in evaluate.share(None)


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        ([], "run is missing"),
        (["runs"], "'runs' is not a setting"),
        (["run=x", "episode=3"], "did you mean episodes?"),
        (["run=x", "episodes=0"], "episodes is 0"),
        (["run=x", "seed=-1"], "seed is -1"),
        (["run=x", "checkpoint=worst"], "best, last"),
        (["run=/no/such"], "/no/such is not a run folder"),
    ],
)
def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str], argv: list[str], part: str):
    assert part in refusal(capsys, *argv)


def test_a_run_without_checkpoint_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    config.save_run(command_line.load(["env=cartpole", "num_envs=8"]), tmp_path)
    assert "there is no checkpoint at" in refusal(capsys, f"run={tmp_path}")


def test_another_network_is_refused(run_dir: Path, capsys: pytest.CaptureFixture[str]):
    page = run_dir / config.CONFIG_FILE
    before = page.read_text()
    page.write_text(before.replace("- 8\n", "- 9\n"))
    assert evaluate.main([f"run={run_dir}", "episodes=2"]) == 2
    page.write_text(before)
    said = capsys.readouterr().err
    assert "checkpoints/best" in said
    assert "float32[4,9]" in said
    assert "float32[4,8]" in said
