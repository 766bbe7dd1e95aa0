"""Evaluations and films beside a training: what they write, and that their trouble is a warning and nothing more."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path

import imageio.v3 as iio
import pytest
from tensorboardX.proto.event_pb2 import Event

from mjxgym import measure, train, watch
from mjxgym.physics import render

TINY = ("env=cartpole", "num_envs=8", "ppo.num_steps=8", "ppo.hidden=[8]", "ppo.num_epochs=1",
        "iterations_per_call=2", "env.episode_length=40", "eval.episodes=4", "video.seconds=0.2", "video.width=64",
        "video.height=48")  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning")


def evaluations(folder: Path) -> list[dict[str, float]]:
    with (folder / watch.EVALUATIONS).open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def events(folder: Path) -> dict[tuple[str, int], float]:
    """Value by (name, x) of the scalars of the TensorBoard file: records of length, crc, data, crc."""
    (path,) = (folder / "tensorboard").glob("events*")
    data, position, found = path.read_bytes(), 0, {}
    while position < len(data):
        (size,) = struct.unpack_from("<Q", data, position)
        event = Event.FromString(data[position + 12 : position + 12 + size])
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        position += 12 + size + 4
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On engine c, evaluated and filmed on the way and at the end."""
    folder = tmp_path_factory.mktemp("watch") / "run"
    words = [*TINY, "engine=c", "iterations=6", "eval.every=2", "video.every=3", f"run_dir={folder}"]
    assert train.main(words) == 0
    return folder


def test_every_evaluation_is_a_row(whole: Path):
    rows = evaluations(whole)
    assert [row["iteration"] for row in rows] == [2, 4, 6]
    assert [row["eval/env_steps"] for row in rows] == [2 * 64, 4 * 64, 6 * 64]
    for row in rows:
        assert 1 <= row["eval/length"] <= 40
        assert row["eval/seconds"] > 0
        assert (row["gap/return"], row["gap/length"]) == (0, 0)  # the training's engine is c
    times = [row["seconds_training"] for row in rows]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(metrics(whole)[-1]["seconds_training"])  # evaluating is no training time


def metrics(folder: Path) -> list[dict[str, float]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_films_are_made_on_the_way_and_of_the_best(whole: Path):
    films = sorted(str(path.relative_to(whole)) for path in whole.rglob("*.mp4"))
    assert films == ["video.mp4", "videos/000004.mp4", "videos/000006.mp4"]  # iteration 3 lies inside a call
    for film in films:
        # 0.2 s are 12 control steps of 1 / 60 s, every other one shown.
        assert iio.imread(whole / film).shape == (6, 48, 64, 3)


def test_the_best_is_measured_at_the_end(whole: Path):
    (record,) = (json.loads(line) for line in (whole / measure.RECORD).read_text().splitlines())
    assert (record["checkpoint"], record["engine"], record["episodes"]) == ("best", "c", 4)


def test_going_on_repeats_no_row(whole: Path, tmp_path: Path):
    words = [*TINY, "engine=c", "eval.every=2", "eval.at_end=false", "video.at_end=false"]
    assert train.main([*words, "iterations=4", f"run_dir={tmp_path}"]) == 0
    with (tmp_path / watch.EVALUATIONS).open("a") as file:  # of a part that died after its last checkpoint
        file.write("5,320,9,9,9,9,9,9,9,9\n")
    assert train.main([f"resume={tmp_path}", "iterations=6"]) == 0
    timed = ("seconds_training", "eval/seconds")

    def untimed(folder: Path) -> list[dict[str, float]]:
        return [{name: x for name, x in row.items() if name not in timed} for row in evaluations(folder)]

    assert untimed(tmp_path) == untimed(whole)


def test_another_engine_is_held_against_c(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = [*TINY, "engine=jax", "iterations=4", "eval.every=4", "video.at_end=false", f"run_dir={tmp_path}"]
    assert train.main(words) == 0
    (row,) = evaluations(tmp_path)
    assert row["gap/return"] != 0  # float32 against float64
    # The same starts, 40 steps at most: what differs is rounding, and perhaps the step in which an episode ends.
    assert abs(row["gap/return"]) < 0.05 * abs(row["eval/return"])
    assert row["gap/kept"] == pytest.approx(1 + row["gap/return"] / row["eval/return"])
    assert "on engine jax; engine c keeps" in capsys.readouterr().out
    engines = [json.loads(line)["engine"] for line in (tmp_path / measure.RECORD).read_text().splitlines()]
    assert engines == ["jax", "c"]


def test_trouble_with_films_is_one_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Of five films to be made; and the rest of the run is whole."""

    def broken(*_: object) -> None:
        raise RuntimeError("nothing here can draw")

    monkeypatch.setattr(render, "film", broken)
    words = [*TINY, "engine=c", "iterations=8", "video.every=2", "eval.every=4", f"run_dir={tmp_path}"]
    assert train.main(words) == 0
    said = capsys.readouterr()
    assert said.err == "warning: video does not work (nothing here can draw); training goes on without it\n"
    assert len(metrics(tmp_path)) == 8
    assert len(evaluations(tmp_path)) == 2
    assert "video  " not in said.out
    assert "evaluated" in said.out


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("video.width=641", "video.width is 641; H.264 needs an even number, 16 at least: say width=642"),
        ("video.envs=0", "video.envs is 0"),
        ("video.seconds=0", "video.seconds is 0.0"),
        ("video.every=-1", "video.every is -1"),
        ("video.camera=tracker", "the model has no camera 'tracker'; it has track"),
        ("video.renderer=vulkan", "video.renderer is 'vulkan'; it must be one of auto, gl, rays"),
        ("eval.every=-1", "eval.every is -1"),
        ("eval.episodes=0", "eval.episodes is 0"),
    ],
)
def test_a_mistake_stops_the_run_before_it_starts(
    word: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert train.main([*TINY, "engine=c", "iterations=2", f"run_dir={tmp_path / 'run'}", word]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_policy_that_leans_on_its_engine_is_flagged():
    here = measure.Summary("warp", 2, 101.0, 12.7, 101.0, 1.4, 40.0, 0.0, 0.0, 1.0, 0.0, terms=())
    assert train.judged(watch.Final()) == []
    (line,) = train.judged(watch.Final(here, measure.Kept(0.85, 0.02)))
    assert "101.0 ± 12.7 on engine warp; engine c keeps 85 ± 2 % of it: less than 90 %" in line
    (line,) = train.judged(watch.Final(here, measure.Kept(0.97, 0.02)))
    assert "less than" not in line


def test_tensorboard_has_the_same_numbers(whole: Path):
    found = events(whole)
    for row in evaluations(whole):
        for name in ("eval/return", "eval/length", "gap/return"):
            assert found[name, int(row["eval/env_steps"])] == pytest.approx(row[name], rel=1e-6)
