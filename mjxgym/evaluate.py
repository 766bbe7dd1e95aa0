"""Measure a trained policy: python -m mjxgym.evaluate run=runs/ant/2030-01-01_12-00-00-42

  run=PATH                  the run folder
  checkpoint=best|last      which of its checkpoints
  engine=auto|warp|jax|c    the run's own by default; another one shows how much the policy depends on it
  episodes=256  seed=0      whole episodes, one per env, from fresh starts, with the mean action

Prints a table and writes RUN/evaluate-<engine>.json. Exit code 2: it cannot be done as asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import stdtrit

from mjxgym import cache, checkpoint, config, machine, ppo, strict, xla
from mjxgym.strict import UserError
from mjxgym.train import build


@dataclass(frozen=True)
class Settings:
    """What the command line may say."""

    run: str | None = None
    checkpoint: Literal["best", "last"] = "best"
    engine: str | None = None  # None: the run's
    episodes: int = 256
    seed: int = 0


class Policy(NamedTuple):
    """The part of a TrainState that acts; the names are its fields'."""

    params: Any
    obs_stats: Any


@dataclass(frozen=True)
class Term:
    """A reward term's sum over an episode, the mean over episodes."""

    name: str
    unweighted: float
    weighted: float | None  # None: the task names no weights


@dataclass(frozen=True)
class Summary:
    """What the episodes were like. Returns, lengths and terms are of episodes whose physics did not break."""

    task: str
    engine: str
    device: str
    checkpoint: str
    iteration: int
    seed: int
    episodes: int
    return_mean: float
    return_interval: float | None  # half width of the 95 % confidence interval of the mean (Student's t)
    return_median: float
    return_std: float | None
    length_mean: float  # control steps
    terminated: float  # shares of all episodes
    truncated: float
    quarantined: float
    terms: tuple[Term, ...]


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
    summary = evaluate(settings)
    Console(highlight=False, soft_wrap=True).print(table(summary))
    path = Path(settings.run or "") / f"evaluate-{summary.engine}.json"
    try:
        path.write_text(json.dumps(asdict(summary), indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    print(path)
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


def evaluate(settings: Settings) -> Summary:
    """Rebuild the run's env and network, restore the policy, play."""
    cache.enable()
    folder = Path(settings.run or "").expanduser()
    saved = config.load_run(folder)
    built, saved = build(replace(saved, engine=settings.engine or saved.engine))
    key = jax.random.key(settings.seed)
    # An engine's own buffers are no part of a policy, so these shapes are the same on all engines.
    shapes = jax.eval_shape(lambda key: ppo.init(built.vec, built.net, saved.ppo, saved.num_envs, key), key)
    path = folder / config.CHECKPOINTS / settings.checkpoint
    policy, note = checkpoint.restore(path, Policy(shapes.params, shapes.obs_stats), saved.task)
    length = built.vec.env.episode_length
    episodes = ppo.evaluate(
        built.vec, built.net, policy.params, policy.obs_stats, saved.ppo, key, settings.episodes, length
    )
    weights = getattr(built.vec.env, "reward_weights", None)
    return summarise(jax.device_get(episodes), weights, saved, settings, note["iteration"])


def summarise(
    episodes: ppo.Episodes, weights: Any, saved: config.TrainConfig, settings: Settings, iteration: int
) -> Summary:
    """Numbers of [N] episodes, fetched."""
    sound = episodes.finished & ~episodes.quarantined
    count = int(sound.sum())
    if count == 0:
        raise UserError(f"the physics broke in all {settings.episodes} episodes; there is nothing to measure")
    returns = episodes.returns[sound].astype(np.float64)
    std = float(returns.std(ddof=1)) if count > 1 else None
    names = getattr(episodes.terms, "_fields", ())
    sums = [float(np.mean(term[sound])) for term in episodes.terms]
    worth = [None] * len(sums) if weights is None else [float(weight) for weight in weights]
    return Summary(
        task=saved.task,
        engine=saved.engine,
        device=machine.device(),
        checkpoint=settings.checkpoint,
        iteration=iteration,
        seed=settings.seed,
        episodes=settings.episodes,
        return_mean=float(returns.mean()),
        return_interval=None if std is None else float(stdtrit(count - 1, 0.975)) * std / count**0.5,
        return_median=float(np.median(returns)),
        return_std=std,
        length_mean=float(episodes.lengths[sound].mean()),
        terminated=float(episodes.terminated.mean()),
        truncated=float(episodes.truncated.mean()),
        quarantined=float(episodes.quarantined.mean()),
        terms=tuple(
            Term(name, total, None if weight is None else weight * total)
            for name, total, weight in zip(names, sums, worth, strict=True)
        ),
    )


def table(summary: Summary) -> Table:
    """For people's eyes."""
    interval = "" if summary.return_interval is None else f" ± {summary.return_interval:.1f}"
    spread = "" if summary.return_std is None else f" (std {summary.return_std:.1f})"
    title = (
        f"{summary.task}, engine {summary.engine}, {summary.device}: {summary.checkpoint} checkpoint "
        f"(iteration {summary.iteration}), {summary.episodes} episodes, mean action"
    )
    shown = Table("", "per episode", "weighted", title=title, title_justify="left")
    shown.columns[1].justify = shown.columns[2].justify = "right"
    shown.add_row("mean return, 95 % interval", f"{summary.return_mean:.1f}{interval}{spread}")
    shown.add_row("median return", f"{summary.return_median:.1f}")
    shown.add_row("length, control steps", f"{summary.length_mean:.0f}")
    for name in ("terminated", "truncated", "quarantined"):
        shown.add_row(name, f"{100 * getattr(summary, name):.1f} %")
    shown.add_section()
    for term in summary.terms:
        weighted = "" if term.weighted is None else f"{term.weighted:.2f}"
        shown.add_row(f"reward/{term.name}", f"{term.unweighted:.2f}", weighted)
    return shown


if __name__ == "__main__":
    sys.exit(main())
