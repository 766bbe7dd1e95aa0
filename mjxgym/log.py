"""A call's metrics -> terminal, metrics.csv, TensorBoard events and, if asked for, Weights & Biases.

Every sink takes the same rows, one per iteration, with the same names; x is env steps.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from mjxgym.config import TrainConfig
from mjxgym.strict import plain

METRICS_FILE = "metrics.csv"
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
            header, *lines = path.read_text().splitlines(keepends=True)
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


class TensorBoard:
    """Event files; what an earlier part of the run wrote beyond `env_steps` is hidden."""

    def __init__(self, folder: Path, env_steps: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=env_steps + 1 if env_steps else None)

    def write(self, rows: Sequence[Row]) -> None:
        """One event per finite number."""
        for row in rows:
            for name, value in row.items():
                if math.isfinite(value):
                    self._writer.add_scalar(name, value, int(row["env_steps"]))

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class Wandb:
    """A Weights & Biases run. Whatever goes wrong there is one warning, and training goes on without it."""

    def __init__(self, config: TrainConfig, run_dir: Path) -> None:
        self._run: Any = None
        wanted = config.wandb
        if wanted.mode == "disabled":
            return
        try:
            import wandb

            self._run = wandb.init(
                mode=wanted.mode, project=wanted.project, entity=wanted.entity, group=wanted.group or config.task,
                name=wanted.name or run_dir.name, tags=list(wanted.tags), config=plain(config), dir=str(run_dir),
                save_code=True, settings=wandb.Settings(silent=True),
            )  # fmt: skip
        except Exception as error:
            self._give_up(error)

    def write(self, rows: Sequence[Row]) -> None:
        """One W&B step per iteration; NaN (no episode finished) is left out."""
        if self._run is None:
            return
        try:
            for row in rows:
                finite = {name: value for name, value in row.items() if math.isfinite(value)}
                self._run.log(finite, step=int(row["env_steps"]))
        except Exception as error:
            self._give_up(error)

    def close(self) -> None:
        """Finish the run."""
        try:
            if self._run is not None:
                self._run.finish()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._run = None
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        print(f"warning: W&B does not work ({reason}); training goes on without it", file=sys.stderr)


class Terminal:
    """On a terminal a bar with the latest numbers beneath, elsewhere one plain line per call."""

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

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._live is not None:
            self._live.stop()
