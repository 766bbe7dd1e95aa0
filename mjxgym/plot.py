"""Draw learning curves: python -m mjxgym.plot RUN [RUN ...] [out=FILE.png]

  RUN             folders of training runs. Runs that differ only in their seed become one curve: thin lines for the
                  runs and, while all of them last, their median in a band from the lowest to the highest
  out=FILE.png    or .pdf or .svg; by default RUN/learning_curve.png, for several runs learning_curves.png

Return against env steps and against training time, and what each reward term contributes; each task by itself.
Exit code 2: it cannot be done as asked.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import EngFormatter

from mjxgym import strict, terms
from mjxgym.command_line import RESUMABLE
from mjxgym.config import CONFIG_FILE
from mjxgym.log import METRICS_FILE
from mjxgym.strict import UserError

PICTURE = "learning_curve.png"
FORMATS = (".png", ".pdf", ".svg")
# What does not make two runs different: the seed, where the files are, how long they ran and how they report.
ALIKE = ("seed", "run_dir", "resume", *RESUMABLE)
TIMES = (("env_steps", "env steps"), ("seconds_training", "training time without compiling, s"))
# Okabe and Ito's colours, told apart with any colour vision; yellow is left out, too pale for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", ":", "-.")
Line = tuple[np.ndarray, np.ndarray]  # x and y, [points]
# Points of a median curve, more than its panel has pixels to show.
POINTS = 1000
# Height of a line of text, as a part of a panel's: 8 pt in 2.4 inches.
TEXT_HEIGHT = 0.065


class Run(NamedTuple):
    """What is drawn of a run folder."""

    settings: dict[str, Any]  # config.yaml, by dotted key
    columns: dict[str, np.ndarray]  # metrics.csv, [iterations]
    device: str | None  # from machine.json; None without it

    @property
    def contributions(self) -> dict[str, np.ndarray]:
        """Reward per control step by term, [iterations]: weight x mean."""
        prefix = "env.weights."
        weights = {key.removeprefix(prefix): x for key, x in self.settings.items() if key.startswith(prefix)}
        return terms.contributions(self.columns, weights)


class Group(NamedTuple):
    """Runs that differ in nothing but their seed."""

    label: str  # the settings in which it differs from the other groups; empty if it is the only one
    runs: list[Run]


class Curve(NamedTuple):
    """A median over runs, and how far they spread; [points], none where the runs have no stretch in common."""

    x: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return strict.exit_code(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """Read, draw, and say where."""
    if any(word in ("-h", "--help") for word in argv):
        print(__doc__)
        return 0
    folders, out = load(argv)
    runs = [read(folder) for folder in folders]
    try:
        draw(runs, out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror or error}") from error
    print(out)
    return 0


def load(argv: Sequence[str]) -> tuple[list[Path], Path]:
    """The run folders, each once, and the picture's path."""
    words = [word for word in argv if not word.startswith("out=")]
    outs = [word.removeprefix("out=") for word in argv if word.startswith("out=")]
    folders = list({Path(word).expanduser().resolve(): Path(word).expanduser() for word in words}.values())
    if not folders:
        raise UserError("no run is named: say python -m mjxgym.plot RUN [RUN ...], the folders of training runs")
    for word in words:
        if "=" in word and not Path(word).expanduser().exists():
            raise UserError(f"command line: {word!r} is neither a run folder nor out=FILE.png")
    out = folders[0] / PICTURE if len(folders) == 1 else Path("learning_curves.png")
    if outs:
        out = Path(outs[-1]).expanduser()
        if out.suffix not in FORMATS:
            raise UserError(f"out={outs[-1]} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    return folders, out


def read(folder: Path) -> Run:
    """A run folder's settings and metrics."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        inside = sorted(folder.glob(f"*/{CONFIG_FILE}"))
        hint = f"; did you mean one in it, such as {inside[0].parent}, or all, {folder}/*?" if inside else ""
        raise UserError(f"{folder} is not a run folder: it has no {CONFIG_FILE}{hint}")
    settings = strict.flatten(strict.read_yaml(path, str(path)))
    try:
        device = json.loads((folder / "machine.json").read_text())["device"]
    except (OSError, ValueError, KeyError, TypeError):
        device = None  # it is for the title only
    return Run(settings, read_metrics(folder / METRICS_FILE), device)


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """The columns of a metrics.csv. A last line that is cut short, by a dying machine or a run under way, is no row."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; training writes it from the first iteration on") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged: it is not text") from error
    names, *rows = list(csv.reader(line for line in lines if line.endswith("\n"))) or [[]]
    if not rows:
        raise UserError(f"{path} has no row yet; the first call of the training must end before there is a curve")
    for name in ("return/mean", *(column for column, _ in TIMES)):
        if name not in names:
            raise UserError(f"{path} has no column {name}; it is not from python -m mjxgym.train")
    values = np.empty((len(rows), len(names)))
    for index, row in enumerate(rows):
        try:
            values[index] = [float(word) for word in row]
        except ValueError as error:
            raise UserError(f"{path} is damaged: line {index + 2} is not {len(names)} numbers") from error
    return dict(zip(names, values.T, strict=True))


def draw(runs: Sequence[Run], out: Path) -> None:
    """The picture, one block per task; needs no display."""
    tasks: dict[str, list[Run]] = {}
    for one in runs:
        tasks.setdefault(str(one.settings.get("task")), []).append(one)
    blocks = [(task, group(of_task)) for task, of_task in tasks.items()]
    # Inches: a row of two panels each for the return and for every two groups' contributions.
    heights = [3.7 + 3.0 * ((len(groups) + 1) // 2) for _, groups in blocks]
    figure = Figure(figsize=(11, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(blocks), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (task, groups) in zip(parts, blocks, strict=True):
        draw_task(part, task, groups)
    figure.savefig(out, dpi=130)


def group(runs: Sequence[Run]) -> list[Group]:
    """Runs of one task, by the settings that make a difference, in the order in which they are given."""
    found: dict[tuple, list[Run]] = {}
    for one in runs:
        known = {key: strict.show(value) for key, value in one.settings.items() if key.partition(".")[0] not in ALIKE}
        found.setdefault(tuple(sorted(known.items())), []).append(one)
    kinds = [dict(kind) for kind in found]
    keys = sorted(set().union(*kinds), key=lambda key: (key.count("."), key))
    differing = [key for key in keys if len({kind.get(key) for kind in kinds}) > 1]
    labels = ["  ".join(f"{key}={kind[key]}" for key in differing if key in kind) for kind in kinds]
    return [Group(label, members) for label, members in zip(labels, found.values(), strict=True)]


def curve(lines: Sequence[Line]) -> Curve:
    """Over runs, each interpolated onto common points, from where the last one starts to where the first one ends.

    A single run is its own median.
    """
    if not lines or not all(len(x) for x, _ in lines):
        return Curve(*np.empty((4, 0)))
    if len(lines) == 1:
        return Curve(*lines[0], lines[0][1], lines[0][1])
    size = min(max(len(x) for x, _ in lines), POINTS)
    start, end = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    if start > end:  # no stretch is common to all
        return Curve(*np.empty((4, 0)))
    grid = np.linspace(start, end, size)
    ys = np.stack([np.interp(grid, x, y) for x, y in lines])  # [runs, points]
    return Curve(grid, np.median(ys, axis=0), ys.min(axis=0), ys.max(axis=0))


def finite(x: np.ndarray, y: np.ndarray) -> Line:
    """Without the points that have nothing to show, such as iterations in which no episode finished."""
    known = np.isfinite(y)
    return x[known], y[known]


def draw_task(part: SubFigure, task: str, groups: Sequence[Group]) -> None:
    """Two panels of the return, then one of contributions for each group."""
    part.suptitle(title(task, groups), x=0.01, ha="left", fontsize=11, fontweight="bold")
    rows = (len(groups) + 1) // 2
    grid = part.add_gridspec(1 + rows, 2, height_ratios=[1.15, *[1.0] * rows])
    first = part.add_subplot(grid[0, 0])
    panels = [first, part.add_subplot(grid[0, 1], sharey=first)]
    for axes, (column, label) in zip(panels, TIMES, strict=True):
        draw_return(axes, column, groups)
        furnish(axes, label, "mean return of finished episodes" if column == "env_steps" else "")
    if any(one.label or len(one.runs) > 1 for one in groups):
        first.legend(fontsize=8, edgecolor="none", title=band(groups), title_fontsize=8, alignment="left")
    shared: Axes | None = None
    for index, one in enumerate(groups):
        cell = grid[1, :] if len(groups) == 1 else grid[1 + index // 2, index % 2]
        shared = axes = part.add_subplot(cell, sharey=shared)
        draw_contributions(axes, one.runs)
        furnish(axes, TIMES[0][1], "" if index % 2 else "reward per control step")
        axes.set_title("weight x mean of each reward term" + f", {one.label}" * bool(one.label), fontsize=8, loc="left")


def title(task: str, groups: Sequence[Group]) -> str:
    """The task, and what all its runs have in common."""
    runs = [one for members in groups for one in members.runs]
    said = []
    for form, values in (
        ("engine {}", {one.settings.get("engine") for one in runs}),
        ("{} envs", {one.settings.get("num_envs") for one in runs}),
        ("{}", {one.device for one in runs}),
    ):
        if len(values) == 1 and None not in values:
            said.append(form.format(*values))
    seeds = [str(one.settings.get("seed")) for one in groups[0].runs]
    if len(groups) == 1:
        said.append(f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(seeds)}")
    return f"{task}: {', '.join(said)}"


def band(groups: Sequence[Group]) -> str | None:
    """What the legend has to explain."""
    return "thick: median of the runs; band: lowest to highest" if any(len(one.runs) > 1 for one in groups) else None


def draw_return(axes: Axes, column: str, groups: Sequence[Group]) -> None:
    """One curve per group."""
    drawn = False
    for index, one in enumerate(groups):
        lines = [finite(run.columns[column], run.columns["return/mean"]) for run in one.runs]
        drawn |= any(len(x) for x, _ in lines)
        count = f"{len(one.runs)} runs" if len(one.runs) > 1 else ""
        plot_curve(axes, lines, *look(index), ", ".join(filter(None, (one.label, count))))
    if not drawn:
        axes.text(0.5, 0.5, "no episode finished", ha="center", transform=axes.transAxes)


def draw_contributions(axes: Axes, runs: Sequence[Run]) -> None:
    """The reward's terms and their sum, each named where its line ends."""
    parts = [run.contributions for run in runs]
    steps = [run.columns["env_steps"] for run in runs]
    if not all(parts):
        axes.text(0.5, 0.5, "the settings name no weights (env.weights)", ha="center", transform=axes.transAxes)
        return
    sums = [np.sum(list(part.values()), axis=0) for part in parts]
    named = [(name, [part[name] for part in parts]) for name in parts[0]] + [("sum", sums)]
    ends = []
    for index, (name, ys) in enumerate(named):
        colour, style = look(index) if name != "sum" else ("black", ":")
        end = plot_curve(axes, [finite(x, y) for x, y in zip(steps, ys, strict=True)], colour, style)
        if end is not None:
            ends.append((*end, name, colour))
    name_ends(axes, ends)


def look(index: int) -> tuple[str, str]:
    """Colour and style of a panel's `index`th curve."""
    return COLOURS[index % len(COLOURS)], STYLES[index // len(COLOURS) % len(STYLES)]


def plot_curve(
    axes: Axes, lines: Sequence[Line], colour: str, style: str, label: str = ""
) -> tuple[float, float] | None:
    """The runs of a group and, where they are several, their median and band; (x, y) where the last of it ends."""
    found = curve(lines)
    if len(lines) > 1:
        for x, y in lines:
            axes.plot(x, y, color=colour, linestyle=style, linewidth=0.6, alpha=0.4)
        axes.fill_between(found.x, found.low, found.high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(found.x, found.median, color=colour, linestyle=style, linewidth=1.4, label=label)
    ends = [(x[-1], y[-1]) for x, y in ((found.x, found.median), *lines) if len(x)]
    return max(ends, key=lambda end: end[0], default=None)


def name_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names at the right, in the order of the lines' (x, y) ends, moved apart as far as they need."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    ordered = sorted(ends, key=lambda end: end[1])
    places = spread([(y - low) / (high - low) for _, y, _, _ in ordered], TEXT_HEIGHT)
    for (x, y, name, colour), place in zip(ordered, places, strict=True):
        axes.annotate(
            name, xy=(x, y), xytext=(1.03, place), textcoords="axes fraction", color=colour, fontsize=8, va="center",
            arrowprops={
                "arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6, "relpos": (0, 0.5),
                "shrinkA": 1, "shrinkB": 1,
            },
        )  # fmt: skip


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved as little as possible, in least squares, until neighbours are `gap` apart."""
    clusters: list[list[float]] = []  # of places less what the ones before them take up; each sits at its mean
    for index, place in enumerate(places):
        clusters.append([place - index * gap])
        while len(clusters) > 1 and np.mean(clusters[-2]) >= np.mean(clusters[-1]):
            last = clusters.pop()
            clusters[-1] += last
    means = [float(np.mean(cluster)) for cluster in clusters for _ in cluster]
    return [mean + index * gap for index, mean in enumerate(means)]


def furnish(axes: Axes, x_label: str, y_label: str) -> None:
    """Labels, and no more ink than reading needs."""
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.tick_params(labelsize=8)
    if x_label == TIMES[0][1]:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1.5M
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
