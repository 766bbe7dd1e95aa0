"""`python -m mjxgym.evaluate`: from a run folder to a table and a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mjxgym import command_line, config, evaluate, ppo, train
from mjxgym.config import task_config
from mjxgym.strict import UserError


class Terms(NamedTuple):
    run: np.ndarray
    fall: np.ndarray


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    words = ["env=cartpole", "engine=c", "num_envs=8", "ppo.num_steps=8", "ppo.hidden=[8]", "ppo.num_epochs=1"]
    words += ["env.episode_length=30", "iterations=3", f"run_dir={folder}"]
    assert train.main(words) == 0
    return folder


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert evaluate.main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


def test_a_run_is_measured_shown_and_written(run_dir: Path, capsys: pytest.CaptureFixture[str]):
    assert evaluate.main([f"run={run_dir}", "episodes=16", "checkpoint=last"]) == 0
    said = capsys.readouterr().out
    for part in ("mean return, 95 % interval", "median", "terminated", "truncated", "quarantined", "reward/alive"):
        assert part in said
    written = json.loads((run_dir / "evaluate-c.json").read_text())
    assert (written["task"], written["engine"], written["iteration"], written["episodes"]) == ("cartpole", "c", 3, 16)
    assert sum(written[share] for share in ("terminated", "truncated", "quarantined")) == pytest.approx(1.0)
    weighted = sum(term["weighted"] for term in written["terms"])
    assert weighted == pytest.approx(written["return_mean"], abs=1e-3)  # the terms make up the return
    assert written["length_mean"] <= 30


def test_the_numbers_are_those_of_sound_episodes():
    flags = {"terminated": [1, 0, 0, 1], "truncated": [0, 1, 0, 0], "quarantined": [0, 0, 1, 0]}
    flags = {name: np.array(values, bool) for name, values in flags.items()}
    returns, zero = np.array([1.0, 2.0, 999.0, 6.0], np.float32), np.zeros(4, np.float32)
    episodes = ppo.Episodes(returns, np.array([10, 20, 5, 30]), **flags, terms=Terms(returns, zero))  # type: ignore
    saved, settings = task_config("cartpole"), evaluate.Settings(episodes=4)
    summary = evaluate.summarise(episodes, Terms(2.0, -1.0), saved, settings, 5)  # type: ignore
    assert (summary.return_mean, summary.return_median, summary.length_mean) == (3.0, 2.0, 20.0)
    # t(0.975, 2) = 4.30265; std of 1, 2, 6 is sqrt(7)
    assert summary.return_interval == pytest.approx(4.30265 * (7 / 3) ** 0.5, rel=1e-5)
    assert (summary.terminated, summary.truncated, summary.quarantined) == (0.5, 0.25, 0.25)
    assert [(term.name, term.unweighted, term.weighted) for term in summary.terms] == [
        ("run", 3.0, 6.0), ("fall", 0.0, 0.0),
    ]  # fmt: skip
    assert evaluate.summarise(episodes, None, saved, settings, 5).terms[0].weighted is None
    broken = episodes._replace(quarantined=np.ones(4, bool))
    with pytest.raises(UserError, match="physics broke in all 4"):
        evaluate.summarise(broken, None, saved, settings, 5)


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
