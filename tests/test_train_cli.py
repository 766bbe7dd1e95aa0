"""`python -m mjxgym.train` from the first word to the last file, with real training on engine c."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mjxgym import checkpoint, command_line, config, log, train, watch

TINY = ("env=cartpole", "engine=c", "num_envs=8", "ppo.num_steps=8", "ppo.hidden=[8]", "ppo.num_epochs=1",
        "eval.at_end=false", "video.at_end=false")  # fmt: skip
TIMING = ("seconds_training", "seconds_compile", "steps_per_second")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 7 iterations, uninterrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train.main([*TINY, "iterations=7", "iterations_per_call=3", f"run_dir={folder}"]) == 0
    return folder


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert train.main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    return said


def metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / log.METRICS_FILE).open(newline="") as file:
        return [{name: x for name, x in row.items() if name not in TIMING} for row in csv.DictReader(file)]


def state_page(folder: Path) -> dict:
    """Shapes, types and checksums of every leaf of `last`."""
    return checkpoint.read_about(folder / "checkpoints" / "last")["leaves"]


def test_a_run_leaves_all_its_files(whole: Path):
    for name in ("config.yaml", "machine.json", "metrics.csv", "learning_curve.png", "checkpoints/last",
                 "checkpoints/best", "tensorboard"):  # fmt: skip
        assert (whole / name).exists(), name
    assert config.load_run(whole).engine == "c"
    assert json.loads((whole / "machine.json").read_text())["versions"]["jax"]


def test_the_csv_has_one_row_per_iteration_and_the_promised_columns(whole: Path):
    with (whole / log.METRICS_FILE).open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert tuple(reader.fieldnames or ())[: len(log.FIRST)] == log.FIRST
    assert "reward/alive" in rows[0]
    assert [row["iteration"] for row in rows] == [str(i) for i in range(1, 8)]
    assert rows[-1]["env_steps"] == str(7 * 8 * 8)
    assert float(rows[0]["seconds_compile"]) > 0
    times = [float(row["seconds_training"]) for row in rows]
    assert times == sorted(times)


def test_stopping_and_resuming_is_the_same_run(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert train.main([*TINY, "iterations=2", "iterations_per_call=4"]) == 0
    (folder,) = Path("runs/cartpole").iterdir()
    assert len(metrics(folder)) == 2
    assert train.main(["env=cartpole", "resume=auto", "iterations=7"]) == 0
    assert state_page(folder) == state_page(whole)
    assert metrics(folder) == metrics(whole)


def test_resuming_a_finished_run_changes_nothing(whole: Path, capsys: pytest.CaptureFixture[str]):
    before = (whole / log.METRICS_FILE).read_text()
    assert train.main([f"resume={whole}"]) == 0
    assert (whole / log.METRICS_FILE).read_text() == before
    assert "iteration 7 of 7" in capsys.readouterr().out


def test_a_cache_that_cannot_be_written_is_one_line(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MJXGYM_CACHE", str(tmp_path / "file" / "cache"))
    assert train.main([f"resume={whole}"]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path}/file/cache cannot be written, so compiled code is not kept; set MJXGYM_CACHE" in said


def test_the_closing_lines_say_how_to_go_on(whole: Path, capsys: pytest.CaptureFixture[str]):
    train.finish(config.load_run(whole), whole, train.Progress(iteration=7), stopped=False, final=watch.Final())
    said = capsys.readouterr().out
    assert f"mjxgym.evaluate run={whole}" in said
    assert f"mjxgym.train resume={whole} iterations=14" in said


def test_best_is_a_mean_over_enough_episodes():
    def row(iteration: int, episodes: float, mean: float) -> log.Row:
        return {"iteration": iteration, "seconds_training": 0.0, "episodes": episodes, "return/mean": mean}

    nan = float("nan")
    progress = train.Progress().after([row(1, 60, 10.0), row(2, 0, nan)])
    assert progress.best is None
    progress = progress.after([row(3, 60, 20.0)])
    assert progress.best == pytest.approx(15.0)
    progress = progress.after([row(4, 50, 40.0)])  # the first 60 are no longer needed
    assert progress.best == pytest.approx((60 * 20 + 50 * 40) / 110)
    assert progress.after([row(5, 1000, 1.0)]).best == progress.best
    assert train.Progress(**json.loads(json.dumps(progress._asdict()))).iteration == 4


def test_a_signal_is_taken_once_and_then_given_back():
    said: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with train.stop_on_signal(said.append) as stop:
        assert not stop.asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked
        assert len(said) == 1
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # the second one kills
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
@pytest.mark.sample
def test_ctrl_c_saves_and_exits_with_130(tmp_path: Path):
    words = [*TINY, "iterations=1000000", "iterations_per_call=2", f"run_dir={tmp_path}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mjxgym.train", *words], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if "/1000000" in line:
            process.send_signal(signal.SIGINT)
            break
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopping" in rest
    assert "stopped at iteration" in rest
    note = checkpoint.read_about(tmp_path / "checkpoints" / "last")["note"]
    assert note["iteration"] == len(metrics(tmp_path)) < 1000000


@pytest.mark.slow
@pytest.mark.sample
def test_multirun_starts_one_run_per_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert train.main(["-m", *TINY, "iterations=1", "seed=1,2"]) == 0
    found = sorted(config.load_run(run).seed for run in Path("runs/cartpole").iterdir())
    assert found == [1, 2]


@pytest.mark.slow
@pytest.mark.sample
def test_stopping_and_resuming_is_the_same_run_on_engine_jax(tmp_path: Path):
    words = [word.replace("engine=c", "engine=jax") for word in TINY]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train.main([*words, "iterations=4", "iterations_per_call=3", f"run_dir={whole}"]) == 0
    assert train.main([*words, "iterations=2", "iterations_per_call=3", f"run_dir={parts}"]) == 0
    assert train.main([f"resume={parts}", "iterations=4"]) == 0
    assert state_page(parts) == state_page(whole)
    assert metrics(parts) == metrics(whole)
    assert (parts / "machine.2.json").exists()  # each part says what it ran on


def test_multirun_refuses_a_wrong_key_before_it_starts(capsys: pytest.CaptureFixture[str]):
    assert "did you mean seed" in refusal(capsys, "-m", *TINY, "sed=1,2")


def test_help_lists_the_tasks(capsys: pytest.CaptureFixture[str]):
    assert train.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "python -m mjxgym.train env=ant" in said
    assert "cartpole" in said


def test_an_error_is_one_line_on_stderr_and_exit_code_2(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "mjxgym.train", "env=an"], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "did you mean ant?" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_unknown_engine_is_named(capsys: pytest.CaptureFixture[str]):
    assert "did you mean warp?" in refusal(capsys, "env=cartpole", "engine=wrap")


def test_a_missing_or_broken_model_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert "gone.xml" in refusal(capsys, *TINY, f"env.model={tmp_path}/gone.xml")
    broken = tmp_path / "broken.xml"
    broken.write_text("<mujoco><worldbody><body></mujoco>")
    assert "broken.xml" in refusal(capsys, *TINY, f"env.model={broken}")
    other = tmp_path / "other.xml"
    other.write_text("<mujoco><worldbody><body><joint name='wheel'/><geom size='1'/></body></worldbody></mujoco>")
    assert "slide" in refusal(capsys, *TINY, f"env.model={other}")


def test_a_run_folder_that_cannot_be_made_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert f"run_dir={tmp_path}/file/run cannot be written" in refusal(capsys, *TINY, f"run_dir={tmp_path}/file/run")


def test_a_run_is_never_overwritten(capsys: pytest.CaptureFixture[str], whole: Path):
    assert "already holds a run" in refusal(capsys, *TINY, f"run_dir={whole}")


def test_a_damaged_or_missing_checkpoint_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    config.save_run(command_line.load(TINY), tmp_path)
    assert "there is no checkpoint" in refusal(capsys, f"resume={tmp_path}")
    (tmp_path / "checkpoints" / "last").mkdir(parents=True)
    assert "damaged or incomplete" in refusal(capsys, f"resume={tmp_path}")
