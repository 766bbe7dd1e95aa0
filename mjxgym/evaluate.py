"""Measure a trained policy: python -m mjxgym.evaluate run=runs/ant/2030-01-01_12-00-00-42

  run=PATH                  the run folder
  checkpoint=best|last      which of its checkpoints
  engine=warp,jax,c         one or more: the run's own by default; others show how much the policy depends on it
  episodes=256  seed=0      whole episodes, one per env, from fresh starts, with the mean action

Prints one table, a column for each engine, and adds a line for each to RUN/evaluate.jsonl. Intervals are of 95 %; what
is kept is the share of the first engine's return. Exit code 2: it cannot be done as asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from mjxgym import build, cache, config, measure, physics, strict, xla
from mjxgym.measure import KEPT, Kept, Summary, around, kept
from mjxgym.strict import UserError


@dataclass(frozen=True)
class Settings:
    """What the command line may say."""

    run: str | None = None
    checkpoint: Literal["best", "last"] = "best"
    engine: str | None = None  # names with commas between; None: the run's
    episodes: int = 256
    seed: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    xla.tune()
    return strict.exit_code(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """Evaluate, print and write."""
    if any(word in ("-h", "--help") for word in argv):
        print(__doc__)
        return 0
    settings = load(argv)
    cache.enable()
    folder = Path(settings.run or "").expanduser()
    saved = config.load_run(folder)
    if changed := config.changed_since(folder, saved.task):
        print(changed)
    about, summaries = evaluate(settings, folder, saved)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table(summaries, title(about)))
    print(measure.record(folder, about, summaries))
    return 0


def load(argv: Sequence[str]) -> Settings:
    """The command line's words as types, checked."""
    settings = strict.settings(Settings(), argv)
    if settings.run is None:
        raise UserError("run is missing: say run=PATH, the folder of a training run")
    if settings.episodes < 1:
        raise UserError(f"episodes is {settings.episodes}; it must be at least 1")
    if not 0 <= settings.seed < 2**32:
        raise UserError(f"seed is {settings.seed}; it must be between 0 and 2**32 - 1")
    return settings


def evaluate(settings: Settings, folder: Path, saved: config.TrainConfig) -> tuple[dict[str, Any], list[Summary]]:
    """(what was evaluated, by which name in the record; a summary for each engine asked for, in that order)."""
    with strict.building():
        engines = [physics.resolve(name.strip()) for name in (settings.engine or saved.engine).split(",")]
    summaries: list[Summary] = []
    note: dict[str, Any] = {}
    for engine in dict.fromkeys(engines):
        built, wanted = build.build(replace(saved, engine=engine))
        policy, note = build.restore(built, wanted, folder, settings.checkpoint)
        summaries.append(measure.measure(built, policy, saved.ppo, settings.episodes, settings.seed))
    return measure.about(saved, settings.checkpoint, note["iteration"], settings.seed), summaries


def title(about: dict[str, Any]) -> str:
    """What the table is of."""
    return (
        f"{about['task']}, trained on engine {about['trained_on']}: {about['checkpoint']} checkpoint "
        f"(iteration {about['iteration']}), mean action, seed {about['seed']}, {about['device']}"
    )


def table(summaries: Sequence[Summary], title: str) -> Table:
    """For people's eyes: a column for each engine."""
    first = summaries[0]
    shown = Table("per episode", title=title, title_justify="left")
    for summary in summaries:
        shown.add_column(f"engine {summary.engine}", justify="right")

    def row(name: str, cell: Callable[[Summary], str]) -> None:
        shown.add_row(name, *map(cell, summaries))

    row("episodes", lambda summary: f"{summary.episodes}")
    row("mean return", lambda summary: f"{summary.return_mean:.1f}{around(summary.return_interval)}")
    if len(summaries) > 1:
        row(f"kept of engine {first.engine}'s", lambda summary: "" if summary is first else share(kept(first, summary)))
    row("median return", lambda summary: f"{summary.return_median:.1f}")
    row("length, control steps", lambda summary: f"{summary.length_mean:.0f}{around(summary.length_interval)}")
    row("terminated", lambda summary: f"{100 * summary.terminated:.1f} %")
    row("truncated", lambda summary: f"{100 * summary.truncated:.1f} %")
    row("quarantined", lambda summary: f"{100 * summary.quarantined:.1f} %")
    shown.add_section()
    for index, term in enumerate(first.terms):
        row(f"reward/{term.name}", partial(worth, index))
    return shown


def share(found: Kept | None) -> str:
    """What is kept, marked where it is too little."""
    if found is None:
        return "no share of a return ≤ 0"
    return f"{found}, less than {100 * KEPT:.0f} %" if found.share < KEPT else str(found)


def worth(index: int, summary: Summary) -> str:
    """A term's part of the return; of a task that names no weights, the bare term."""
    term = summary.terms[index]
    return f"{term.unweighted:.2f} (no weight)" if term.weighted is None else f"{term.weighted:.2f}"


if __name__ == "__main__":
    sys.exit(main())
