"""Rows: their names, their numbers, what a resumed run keeps of them, and what becomes of a sink that fails."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from tensorboardX.proto.event_pb2 import Event
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

from mjxgym import command_line, log
from mjxgym.config import WandbConfig, configs_dir, load_run, save_run, task_config, task_names
from mjxgym.strict import flatten, plain

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


def late(env_steps: int) -> log.Row:
    """What an evaluation beside the training reports."""
    return {"eval/env_steps": env_steps, "eval/return": 3.0, "gap/return": float("nan")}


def events(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """(step, values by name) of an event file: records of length, crc, data, crc."""
    (path,) = folder.glob("events*")
    data, position, found = path.read_bytes(), 0, []
    while position < len(data):
        (size,) = struct.unpack_from("<Q", data, position)
        event = Event.FromString(data[position + 12 : position + 12 + size])
        found.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
        position += 12 + size + 4
    return found


def test_tensorboard_has_the_names_of_the_csv_at_env_steps(tmp_path: Path):
    sink, taken = log.TensorBoard(tmp_path, 0), rows(2)
    sink.write(taken)
    sink.write_late(late(2**33))
    found = events(tmp_path)[1:]  # the first is the file's version
    assert [step for step, _ in found] == [2**33, 2**34, 2**33]  # on disk before the sink is closed
    assert set(found[0][1]) == set(taken[0]) - {"return/mean"}  # NaN
    assert set(found[1][1]) == set(taken[1])
    assert found[2][1] == {"eval/env_steps": 2.0**33, "eval/return": 3.0}
    sink.close()


def test_a_resumed_tensorboard_hides_what_came_after_the_checkpoint(tmp_path: Path):
    sink = log.TensorBoard(tmp_path, 100)
    sink.close()
    assert events(tmp_path)[1] == (101, {})  # the start of a session, from which TensorBoard goes on


def test_a_sink_that_fails_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("")
    sink = log.TensorBoard(tmp_path / "file", 0)
    sink.write(rows(1))
    sink.close()
    said = capsys.readouterr().err
    assert said.startswith("warning: TensorBoard does not work (")
    assert said.endswith("); training goes on without it\n")
    assert said.count("\n") == 1
    sink = log.TensorBoard(tmp_path, 0)
    sink._writer.close()  # as a disk that goes away: every write fails from now on
    sink.write(rows(1))
    sink.write_late(late(1))
    sink.write(rows(1))
    sink.close()
    assert capsys.readouterr().err.count("warning: TensorBoard") == 1


def test_the_csv_is_not_spared(tmp_path: Path):
    sink = log.Csv(tmp_path / "metrics.csv", 0)
    sink.close()
    with pytest.raises(ValueError, match="closed file"):
        sink.write(rows(1))


def test_an_empty_csv_is_gone_on_with(tmp_path: Path):
    (tmp_path / "metrics.csv").write_text("")  # a run killed before its first row
    sink = log.Csv(tmp_path / "metrics.csv", 0)
    sink.write(rows(1))
    sink.close()
    assert len(read(tmp_path / "metrics.csv")) == 1


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No key, no settings of a user, and a W&B server that is not there."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # the port of discarded messages: nobody listens
        for name in ("DATA", "CACHE", "CONFIG"):
            patch.setenv(f"WANDB_{name}_DIR", str(home / name))
        yield


class Offline(NamedTuple):
    """What an offline run left."""

    folder: Path
    records: list[Any]  # wandb_internal_pb2.Record
    err: str

    def of(self, kind: str) -> list[Any]:
        return [getattr(record, kind) for record in self.records if record.WhichOneof("record_type") == kind]

    def artifact(self, kind: str) -> set[str]:
        """Names of the files in the artifact of this type."""
        (found,) = (artifact for artifact in self.of("artifact") if artifact.type == kind)
        return {one.path for one in found.manifest.contents}


def wandb_records(path: Path) -> list[Any]:
    """Records of a run file: 7 bytes, then LevelDB's log: blocks of 32768 bytes, chunks with a 7-byte head."""
    data, position, part, found = path.read_bytes(), 7, b"", []
    assert data.startswith(b":W&B")
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:  # too little for a chunk's head: padding
            position += 32768 - position % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", data, position)
        part += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, or the last chunk
            found.append(Record.FromString(part))
            part = b""
    return found


@pytest.fixture(scope="module")
def offline(alone: None, tmp_path_factory: pytest.TempPathFactory) -> Offline:
    """A run with a late row, a video and a best checkpoint."""
    folder = tmp_path_factory.mktemp("runs") / "2030-01-01_12-00-00-7"
    (folder / "checkpoints" / "best" / "arrays").mkdir(parents=True)
    (folder / "checkpoints" / "best" / "about.json").write_text("{}")
    (folder / "checkpoints" / "best" / "arrays" / "d").write_text("numbers")
    (folder / "clip.mp4").write_bytes(b"moving pictures")
    base = task_config("cartpole")
    settings = dataclasses.replace(base, engine="c", wandb=WandbConfig(mode="offline", tags=("try", "c")))
    save_run(settings, folder)
    with contextlib.redirect_stderr(io.StringIO()) as err:
        sink = log.Wandb(settings, folder)
        assert not sink._run.settings.x_disable_stats  # W&B samples the hardware
        sink.write(rows(2))
        sink.write_late(late(2**33))
        sink.video(folder / "clip.mp4", 2**33)
        sink.write(rows(1, done=2))
        sink.close()
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    return Offline(folder, wandb_records(path), err.getvalue())


def test_wandb_offline_needs_no_network_and_no_key(offline: Offline):
    assert offline.err == ""
    (run,) = offline.of("run")
    assert (run.project, run.run_group, run.job_type) == ("mjxgym", "cartpole", "train")
    assert run.display_name == "cartpole-2030-01-01_12-00-00-7"
    assert list(run.tags) == ["cartpole", "c", "try"]
    config = {one.key: json.loads(one.value_json) for one in run.config.update}
    assert config["env"]["weights"]["alive"] == 1.0
    assert config["ppo"]["learning_rate"] == task_config("cartpole").ppo.learning_rate
    assert config["machine"]["versions"]["jax"]


def test_wandb_has_the_names_of_the_csv_at_env_steps(offline: Offline):
    history = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row.item}
        for row in offline.of("history")
    ]
    taken = rows(2)
    found = {row["env_steps"]: row for row in history if "env_steps" in row}
    assert set(found) == {2**33, 2**34, 3 * 2**33}
    assert set(taken[1]) <= set(found[2**34])
    assert found[2**34]["reward/run"] == pytest.approx(0.1)
    assert "return/mean" not in found[2**33]
    axes = {metric.name or metric.glob_name: metric.step_metric for metric in offline.of("metric")}
    assert all(axes[name] == "env_steps" for name in taken[0] if name != "env_steps")
    assert axes["eval/*"] == axes["gap/*"] == "eval/env_steps"
    assert [row["eval/return"] for row in history if "eval/return" in row] == [3.0]
    assert [row["eval/env_steps"] for row in history if "eval/env_steps" in row] == [2**33]


def test_wandb_has_code_settings_video_and_the_best_checkpoint(offline: Offline):
    code = offline.artifact("code")
    assert {
        "config.yaml",
        "mjxgym/ppo/update.py",
        "mjxgym/envs/ant.py",
        "configs/ant.yaml",
        "models/ant/ant.xml",
    } <= code
    assert not [name for name in code if "__pycache__" in name]
    assert offline.artifact("model") == {"about.json", "arrays/d"}
    (video,) = offline.folder.glob("wandb/offline-run-*/files/media/videos/**/*.mp4")
    assert video.read_bytes() == b"moving pictures"


def test_a_resumed_run_is_the_same_at_wandb(offline: Offline, alone: None):
    (before,) = offline.of("run")
    time.sleep(1)  # W&B names the folder of an offline run by second and id
    sink = log.Wandb(dataclasses.replace(load_run(offline.folder), iterations=9), offline.folder)
    sink.write(rows(1, done=3))
    sink.close()
    assert not sink.broken
    assert sink._run.id == before.run_id
    assert sink._run.config["iterations"] == 9
    assert len(list(offline.folder.glob(f"wandb/offline-run-*-{before.run_id}"))) == 2


def test_wandb_disabled_does_nothing_and_broken_is_one_warning(
    alone: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = task_config("cartpole")
    sink = log.Wandb(config, tmp_path)
    use(sink, tmp_path)
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.iterdir())
    broken = WandbConfig(mode="offline", project="a/b:c#?%")  # characters that W&B refuses
    sink = log.Wandb(dataclasses.replace(config, wandb=broken), tmp_path)
    use(sink, tmp_path)
    said = capsys.readouterr().err
    assert said.startswith("warning: W&B does not work")
    assert len(said.splitlines()) == 1


def test_a_video_that_is_not_there_is_one_warning(alone: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = dataclasses.replace(task_config("cartpole"), wandb=WandbConfig(mode="offline"))
    save_run(config, tmp_path)
    sink = log.Wandb(config, tmp_path)
    sink.video(tmp_path / "gone.mp4", 1)
    use(sink, tmp_path)
    said = capsys.readouterr().err
    assert said.startswith("warning: W&B does not work")
    assert len(said.splitlines()) == 1


def test_a_run_that_an_exception_ends_has_failed(alone: None, tmp_path: Path):
    config = dataclasses.replace(task_config("cartpole"), wandb=WandbConfig(mode="offline"))
    save_run(config, tmp_path)
    with pytest.raises(OSError, match="disk"), contextlib.closing(log.Wandb(config, tmp_path)):
        raise OSError("disk full")
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    (ended,) = (record.exit for record in wandb_records(path) if record.WhichOneof("record_type") == "exit")
    assert ended.exit_code == 1


def use(sink: log.Wandb, folder: Path) -> None:
    """Everything that training does with it."""
    sink.write(rows(1))
    sink.write_late(late(1))
    sink.video(folder / "clip.mp4", 1)
    sink.artifact(folder, "best")
    sink.close()


@pytest.mark.parametrize(
    ("folder", "name"),
    [("2030-01-01_12-00-00-7", "ant-2030-01-01_12-00-00-7"), ("my-ant", "my-ant")],
)
def test_a_run_is_named_after_its_task_and_folder(folder: str, name: str):
    assert log.wandb_name("ant", Path("runs") / folder) == name


def agent_words(sweep: dict[str, Any], pick: Callable[[dict[str, Any]], Any]) -> list[str]:
    """The command that W&B's agent makes of a sweep, with one value of each parameter."""
    args = {name: {"value": pick(parameter)} for name, parameter in sweep["parameters"].items()}
    known = {"env": ["/usr/bin/env"], "interpreter": ["python"], **create_sweep_command_args({"args": args})}
    return [word for part in sweep["command"] for word in (known[part[2:-1]] if part.startswith("${") else [part])]


@pytest.mark.parametrize("path", sorted(configs_dir().glob("sweeps/*.yaml")), ids=lambda path: path.stem)
def test_every_trial_of_a_sweep_is_a_command_line_that_loads(path: Path):
    sweep = yaml.safe_load(path.read_text())
    for pick in (lambda one: one["values"][0] if "values" in one else one["min"],
                 lambda one: one["values"][-1] if "values" in one else one["max"]):  # fmt: skip
        words = agent_words(sweep, pick)
        assert words[:4] == ["/usr/bin/env", "python", "-m", "mjxgym.train"]
        config = command_line.load(words[4:])
        assert config.wandb.mode == "online"
        flat = flatten(plain(config))
        for name, parameter in sweep["parameters"].items():
            assert flat[name] == pick(parameter), name  # 1e-3, which yaml reads as text, is not the number
    assert sweep["metric"]["name"] == "return/recent"
    assert path.stem in task_names()
