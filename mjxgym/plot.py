"""The learning curve of a run as a picture."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

AXES = (("env_steps", "env steps"), ("seconds_training", "training time without compiling, s"))


def learning_curve(metrics: Path, picture: Path, title: str) -> None:
    """Draw the mean return of finished training episodes against env steps and against seconds; no display needed."""
    with metrics.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if math.isfinite(float(row["return/mean"]))]
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for axes, (column, label) in zip(figure.subplots(1, 2, sharey=True), AXES, strict=True):
        axes.plot([float(row[column]) for row in rows], [float(row["return/mean"]) for row in rows], linewidth=1)
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
        axes.set_ylabel("mean return of finished episodes, reward units" if column == "env_steps" else "")
        if not rows:
            axes.text(0.5, 0.5, "no episode finished", ha="center", transform=axes.transAxes)
    figure.savefig(picture, dpi=120)
