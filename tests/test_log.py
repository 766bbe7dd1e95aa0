"""Rows: their names, their numbers, and what a resumed run keeps of them."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from mjxgym import log
from mjxgym.config import WandbConfig, task_config
from mjxgym.plot import learning_curve

NAMES = ("return/mean", "episode_length/mean", "learning_rate", "kl", "nonfinite/total", "overflow/total", "reward/run")


def rows(count: int, done: int = 0, seconds: float = 2.0) -> list[log.Row]:
    metrics = {name: np.full(10, done + 0.1, np.float32) for name in ("episodes", *NAMES)}
    metrics["return/mean"][0] = np.nan
    return log.table(metrics, count, done, 2**33, 100.0, seconds, 7.0)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_columns_begin_as_promised_and_terms_come_next():
    first = rows(3)[0]
    assert tuple(first)[: len(log.FIRST)] == log.FIRST
    assert tuple(first)[len(log.FIRST) :] == ("reward/run", "episodes")


def test_only_the_meaningful_rows_are_taken_and_counted_on():
    taken = rows(3, done=4)
    assert [row["iteration"] for row in taken] == [5, 6, 7]
    assert [row["env_steps"] for row in taken] == [5 * 2**33, 6 * 2**33, 7 * 2**33]  # beyond int32
    assert all(isinstance(row["env_steps"], int) for row in taken)
    assert [row["seconds_training"] for row in taken] == pytest.approx([100 + 2 / 3, 100 + 4 / 3, 102])
    assert taken[0]["steps_per_second"] == 3 * 2**33 / 2.0


def test_csv_gives_float32_back_exactly(tmp_path: Path):
    sink = log.Csv(tmp_path / "metrics.csv", 0)
    sink.write(rows(2))
    sink.close()
    first, second = read(tmp_path / "metrics.csv")
    assert first["return/mean"] == "nan"
    assert np.float32(second["kl"]) == np.float32(0.1)
    assert second["env_steps"] == str(2**34)


def test_csv_goes_on_where_the_checkpoint_is_and_drops_what_came_after(tmp_path: Path):
    path = tmp_path / "metrics.csv"
    sink = log.Csv(path, 0)
    sink.write(rows(5))
    sink.close()
    with path.open("a") as file:
        file.write("6,123")  # cut short
    sink = log.Csv(path, 3)
    sink.write(rows(2, done=3))
    sink.close()
    assert [row["iteration"] for row in read(path)] == ["1", "2", "3", "4", "5"]
    assert [row["kl"] for row in read(path)][2:4] == ["0.100000001", "3.0999999"]
    assert path.read_text().count("iteration") == 1


def test_plain_lines_away_from_a_terminal(capsys: pytest.CaptureFixture[str]):
    sink = log.Terminal(10, 0)
    sink.write(rows(3))
    sink.close()
    (line,) = capsys.readouterr().out.splitlines()
    for part in ("3/10", "return", "length", "steps/s", "nonfinite 0", "overflow 0"):
        assert part in line


def test_tensorboard_writes_events(tmp_path: Path):
    sink = log.TensorBoard(tmp_path, 0)
    sink.write(rows(2))
    sink.close()
    (events,) = tmp_path.glob("events*")
    assert b"reward/run" in events.read_bytes()


def test_wandb_disabled_does_nothing_and_broken_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = task_config("cartpole")
    sink = log.Wandb(config, tmp_path)
    sink.write(rows(1))
    sink.close()
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.iterdir())
    broken = WandbConfig(mode="offline", project="a/b:c#?%")  # characters that W&B refuses
    sink = log.Wandb(type(config)(task="cartpole", env=config.env, wandb=broken), tmp_path)
    sink.write(rows(1))
    sink.close()
    said = capsys.readouterr().err
    assert said.startswith("warning: W&B does not work")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("finished", [True, False])
def test_a_learning_curve_is_drawn_without_a_display(tmp_path: Path, finished: bool):
    sink = log.Csv(tmp_path / "metrics.csv", 0)
    sink.write(rows(3 if finished else 1))
    sink.close()
    assert math.isnan(rows(1)[0]["return/mean"])
    learning_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", "hop")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
