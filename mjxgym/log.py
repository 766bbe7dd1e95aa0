"""A call's metrics -> terminal, metrics.csv, TensorBoard events and, if asked for, Weights & Biases.

Every sink takes the same rows, one per iteration, with the same names; x is env steps.
"""

from __future__ import annotations

import csv
import functools
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from mjxgym import machine
from mjxgym.config import CHECKPOINTS, CONFIG_FILE, TrainConfig, configs_dir
from mjxgym.strict import plain

METRICS_FILE = "metrics.csv"
WANDB_ID_FILE = "wandb_id"  # in the run folder, so that a resumed run is the same one at W&B
# The x of what is measured beside training, and so late: an evaluation, a video.
LATE_STEPS, VIDEO_STEPS = "eval/env_steps", "video/env_steps"
# The columns that every run has, in this order; `reward/<term>` and the rest follow.
FIRST = (
    "iteration",
    "env_steps",
    # Wall time inside training calls; compiling, saving and logging are not in it. Resumed parts are added up.
    "seconds_training",
    # From building the first state to a call that is ready: tracing, compiling, one discarded iteration. Added up too.
    "seconds_compile",
    "return/mean",
    "episode_length/mean",
    "steps_per_second",
    "learning_rate",
    "kl",
    "nonfinite/total",
    "overflow/total",
)

Row = Mapping[str, float]


class Sink(Protocol):
    """Where rows go."""

    def write(self, rows: Sequence[Row]) -> None:
        """Take the rows of one call."""
        ...

    def close(self) -> None:
        """Nothing follows."""
        ...


def table(
    metrics: Mapping[str, np.ndarray], count: int, done: int, steps: int, seconds_before: float, seconds: float,
    seconds_compile: float,
) -> list[Row]:  # fmt: skip
    """The first `count` entries of a call's `metrics` as rows.

    `done` iterations came before the call, each of `steps` env steps; the call took `seconds`, shared out evenly.
    """
    names = [name for name in metrics if name not in FIRST]
    names.sort(key=lambda name: not name.startswith("reward/"))
    rows: list[Row] = []
    for index in range(count):
        iteration = done + index + 1
        row: dict[str, float] = {
            "iteration": iteration,
            "env_steps": iteration * steps,
            "seconds_training": seconds_before + seconds * (index + 1) / count,
            "seconds_compile": seconds_compile,
            "steps_per_second": count * steps / seconds,
        }
        row |= {name: float(metrics[name][index]) for name in metrics}
        rows.append({name: row[name] for name in (*FIRST, *names)})
    return rows


class Csv:
    """`metrics.csv`. Going on at an iteration, it drops the rows of later ones: they will be made again."""

    def __init__(self, path: Path, iteration: int) -> None:
        kept = ""
        if path.exists():
            header, *lines = path.read_text().splitlines(keepends=True) or [""]
            # A row cut short by a dying machine has no newline.
            whole = [line for line in lines if line.endswith("\n") and int(line.partition(",")[0]) <= iteration]
            kept = "".join([header, *whole]) if whole else ""
        partial = path.with_name(path.name + ".new")
        partial.write_text(kept)
        os.replace(partial, path)
        self._empty = not kept
        self._file = path.open("a", newline="")

    def write(self, rows: Sequence[Row]) -> None:
        """Append and flush."""
        writer = csv.DictWriter(self._file, list(rows[0]), lineterminator="\n")
        if self._empty:
            writer.writeheader()
            self._empty = False
        # 9 digits give a float32 back exactly.
        writer.writerows({name: f"{x:.9g}" if isinstance(x, float) else x for name, x in row.items()} for row in rows)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Spared:
    """A sink that a run can do without: see `once`."""

    label = ""
    broken = False


S = TypeVar("S", bound=Spared)
P = ParamSpec("P")


def once(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """A method whose first failure is one warning; its sink does nothing from then on, and training goes on."""

    @functools.wraps(method)
    def spared(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.broken:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.broken = True
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            print(f"warning: {self.label} does not work ({reason}); training goes on without it", file=sys.stderr)

    return spared


def finite(row: Row) -> Row:
    """Without NaN, which stands for nothing to average."""
    return {name: value for name, value in row.items() if math.isfinite(value)}


class TensorBoard(Spared):
    """Event files; what an earlier part of the run wrote beyond `env_steps` is hidden."""

    label = "TensorBoard"

    @once
    def __init__(self, folder: Path, env_steps: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        # Not `SummaryWriter`: it writes in a thread of its own, and a full disk there stops training without a word.
        self._writer = EventsWriter(str(folder / "events"))
        if env_steps:
            log = SessionLog(status=SessionLog.START)
            self._writer.write_event(Event(wall_time=time.time(), step=env_steps + 1, session_log=log))

    @once
    def write(self, rows: Sequence[Row]) -> None:
        """One event per row; kept on disk when this returns."""
        for row in rows:
            self._put(row, "env_steps")

    @once
    def write_late(self, row: Row) -> None:
        """A row of its own, of a state that training has left behind: its x is `eval/env_steps`."""
        self._put(row, LATE_STEPS)

    @once
    def close(self) -> None:
        """Flush and close."""
        self._writer.close()

    def _put(self, row: Row, x: str) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in finite(row).items()]
        self._writer.write_event(Event(wall_time=time.time(), step=int(row[x]), summary=Summary(value=values)))
        self._writer.flush()


class Wandb(Spared):
    """A Weights & Biases run, with the settings, the machine and the code; a resumed run goes on in it."""

    label = "W&B"
    _run: Any = None

    @once
    def __init__(self, config: TrainConfig, run_dir: Path) -> None:
        wanted = config.wandb
        if wanted.mode == "disabled":
            return
        import wandb

        self._id, self._best = run_dir / WANDB_ID_FILE, run_dir / CHECKPOINTS / "best"
        self._task, self._named = config.task, False  # whether W&B knows the rows' x
        settings = plain(config) | {"machine": machine.record(config.engine)}
        before = self._id.read_text().strip() if self._id.exists() else None
        self._run = wandb.init(
            mode=wanted.mode, project=wanted.project, entity=wanted.entity, group=wanted.group or config.task,
            name=wanted.name or wandb_name(config.task, run_dir), job_type="train",
            tags=list(dict.fromkeys((config.task, config.engine, *wanted.tags))), config=settings, dir=str(run_dir),
            # None lets W&B choose: the agent of a sweep has its own id for each run.
            id=before, resume="allow", reinit="create_new", save_code=True, settings=wandb.Settings(silent=True),
        )  # fmt: skip
        if before:  # what a resumed run may change, and what it goes on with
            self._run.config.update(settings, allow_val_change=True)
        self._id.write_text(self._run.id + "\n")
        for names, x in (("eval/*", LATE_STEPS), ("gap/*", LATE_STEPS), ("video/*", VIDEO_STEPS)):
            self._run.define_metric(names, step_metric=x)
        with tempfile.TemporaryDirectory() as folder:
            copy_code(Path(folder), run_dir)
            self._run.log_code(folder, name=f"source-{config.task}", include_fn=lambda path: True)

    @once
    def write(self, rows: Sequence[Row]) -> None:
        """One W&B step per iteration, numbered by env steps; those that W&B has already, of a resumed run, it drops."""
        if self._run is None:
            return
        if not self._named:
            for name in rows[0]:
                self._run.define_metric(name, step_metric=None if name == "env_steps" else "env_steps")
            self._named = True
        for row in rows:
            self._run.log(finite(row), step=int(row["env_steps"]))

    @once
    def write_late(self, row: Row) -> None:
        """A row of its own, of a state that training has left behind: its x is `eval/env_steps`."""
        if self._run is not None:
            self._run.log(finite(row))

    @once
    def video(self, path: Path, env_steps: int) -> None:
        """A video file (mp4, gif or webm) of the policy after `env_steps`."""
        if self._run is not None:
            import wandb

            shown = wandb.Video(str(path), caption=f"after {env_steps:,} env steps")
            self._run.log({"video/policy": shown, VIDEO_STEPS: env_steps})

    @once
    def artifact(self, path: Path, name: str, kind: str = "model") -> None:
        """A file, or a folder with all in it, as a version of the artifact `<task>-<run's id>-<name>`."""
        if self._run is None:
            return
        import wandb

        found = wandb.Artifact(f"{self._task}-{self._run.id}-{name}", kind)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                found.add_file(str(file), str(file.relative_to(path)) if path.is_dir() else path.name)
        self._run.log_artifact(found)

    @once
    def close(self) -> None:
        """Hand in the best checkpoint and finish; the run has failed if an exception ends it."""
        if self._run is not None:
            if self._best.exists():
                self.artifact(self._best, "best")
            self._run.finish(exit_code=int(sys.exc_info()[0] is not None))


def wandb_name(task: str, run_dir: Path) -> str:
    """`ant-2030-01-01_12-00-00-42`: what it is of, and the run folder's name, by which the files are found."""
    name = run_dir.resolve().name
    return name if task in name else f"{task}-{name}"


def copy_code(folder: Path, run_dir: Path) -> None:
    """mjxgym's Python, the tasks' settings and the models' XML as they are now, and the run's own settings."""
    configs = configs_dir()  # `models` lies beside it, in a checkout as in a wheel
    for root, kind in ((Path(__file__).parent, "*.py"), (configs, "*.yaml"), (configs.with_name("models"), "*.xml")):
        for file in root.rglob(kind):
            copy = folder / root.name / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    shutil.copyfile(run_dir / CONFIG_FILE, folder / CONFIG_FILE)


class Terminal(Spared):
    """On a terminal a bar with the latest numbers beneath, elsewhere one plain line per call."""

    label = "standard output"

    def __init__(self, iterations: int, iteration: int) -> None:
        self._iterations = iterations
        self._console = Console(highlight=False, soft_wrap=True)
        self._last_return = math.nan
        self._last_length = math.nan
        self._live: Live | None = None
        if self._console.is_terminal:
            self._bar = Progress(TextColumn("iteration"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
            self._task = self._bar.add_task("", total=iterations, completed=iteration)
            self._live = Live(self._bar, console=self._console)
            self._live.start()

    @once
    def write(self, rows: Sequence[Row]) -> None:
        """Show the last row; counts are of all rows, return and length of the last in which an episode finished."""
        for row in rows:
            if math.isfinite(row["return/mean"]):
                self._last_return, self._last_length = row["return/mean"], row["episode_length/mean"]
        last = rows[-1]
        said = (
            f"steps {last['env_steps']:>11,}  return {self._last_return:>8.1f}  length {self._last_length:>5.0f}"
            f"  {last['steps_per_second']:>9,.0f} steps/s"
        )
        faults = (
            f"nonfinite {sum(row['nonfinite/total'] for row in rows):.0f}"
            f"  overflow {sum(row['overflow/total'] for row in rows):.0f}"
        )
        if self._live is None:
            digits = len(str(self._iterations))
            self.say(
                f"{last['iteration']:>{digits}}/{self._iterations}  {last['seconds_training']:7.1f} s  {said}  {faults}"
            )
        else:
            self._bar.update(self._task, completed=last["iteration"])
            self._live.update(Group(self._bar, Text(f"{said}\n{faults}")))

    @once
    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        self._console.print(text, markup=False)

    @once
    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._live is not None:
            self._live.stop()
