"""How good a policy is: whole episodes with the mean action, in one engine or another, and what is kept in another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import stdtrit

from mjxgym import machine, ppo
from mjxgym.build import Built, Policy, at_home
from mjxgym.config import TrainConfig
from mjxgym.ppo import PPOConfig
from mjxgym.strict import UserError

# In the run folder: a line of JSON for each measurement of a checkpoint, the latest last.
RECORD = "evaluate.jsonl"
# A policy that keeps less of its return in another engine has learned that engine.
KEPT = 0.9


@dataclass(frozen=True)
class Term:
    """A reward term's sum over an episode, the mean over episodes."""

    name: str
    unweighted: float
    weighted: float | None  # None: the task names no weights


@dataclass(frozen=True)
class Summary:
    """What the episodes were like. Returns, lengths and terms are of episodes whose physics did not break."""

    engine: str
    episodes: int
    return_mean: float
    return_interval: float | None  # half width of the 95 % confidence interval of the mean (Student's t)
    return_median: float
    return_std: float | None
    length_mean: float  # control steps
    length_interval: float | None
    terminated: float  # shares of all episodes
    truncated: float
    quarantined: float
    terms: tuple[Term, ...]


class Kept(NamedTuple):
    """The share of a return that is left in another engine."""

    share: float
    interval: float | None  # half width, 95 %

    def __str__(self) -> str:
        around = "" if self.interval is None else f" ± {100 * self.interval:.0f}"
        return f"{100 * self.share:.0f}{around} %"


def measure(built: Built, policy: Policy, config: PPOConfig, episodes: int, seed: int) -> Summary:
    """Play an episode in each of so many worlds, from fresh starts. An env on engine c is played on the CPU.

    The starts are those of the seed, whatever the engine. UserError if the physics broke in all of them.
    """
    env, engine = built.env, built.env.physics.name
    with at_home(engine, policy) as policy:
        played = ppo.evaluate(
            built.vec, built.net, policy.params, policy.obs_stats, config, jax.random.key(seed), episodes,
            env.episode_length,
        )  # fmt: skip
        return summarise(jax.device_get(played), env.reward_weights, engine)


def summarise(episodes: ppo.Episodes, weights: Any, engine: str) -> Summary:
    """Numbers of [N] episodes, fetched."""
    number = len(episodes.returns)
    sound = episodes.finished & ~episodes.quarantined
    if not sound.any():
        raise UserError(f"the physics broke in all {number} episodes on engine {engine}; there is nothing to measure")
    returns, lengths = (np.asarray(part[sound], np.float64) for part in (episodes.returns, episodes.lengths))
    names = getattr(episodes.terms, "_fields", ())
    sums = [float(np.mean(term[sound])) for term in episodes.terms]
    worth = [None] * len(sums) if weights is None else [float(weight) for weight in weights]
    return Summary(
        engine=engine,
        episodes=number,
        return_mean=float(returns.mean()),
        return_interval=interval(returns),
        return_median=float(np.median(returns)),
        return_std=float(returns.std(ddof=1)) if len(returns) > 1 else None,
        length_mean=float(lengths.mean()),
        length_interval=interval(lengths),
        terminated=float(episodes.terminated.mean()),
        truncated=float(episodes.truncated.mean()),
        quarantined=float(episodes.quarantined.mean()),
        terms=tuple(
            Term(name, total, None if weight is None else weight * total)
            for name, total, weight in zip(names, sums, worth, strict=True)
        ),
    )


def interval(samples: np.ndarray) -> float | None:
    """Half width of the 95 % confidence interval of the mean of `samples` [N]; None for a single one."""
    count = len(samples)
    if count < 2:
        return None
    return float(stdtrit(count - 1, 0.975)) * float(samples.std(ddof=1)) / count**0.5


def around(interval: float | None) -> str:
    """`± 1.2`, or nothing for a single episode."""
    return "" if interval is None else f" ± {interval:.1f}"


def kept(here: Summary, there: Summary) -> Kept | None:
    """What `there` keeps of `here`'s mean return; None where that is not positive, so that a share means nothing.

    The interval is the delta method's: relative variances add up.
    """
    if here.return_mean <= 0.0:
        return None
    share = there.return_mean / here.return_mean
    if here.return_interval is None or there.return_interval is None:
        return Kept(share, None)
    width = np.hypot(there.return_interval, share * here.return_interval) / here.return_mean
    return Kept(share, float(width))


def about(saved: TrainConfig, checkpoint: str, iteration: int, seed: int) -> dict[str, Any]:
    """What is measured, when and where, by its names in the record."""
    return {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "task": saved.task,
        "trained_on": saved.engine,
        "device": machine.device(),
        "checkpoint": checkpoint,
        "iteration": iteration,
        "seed": seed,
    }


def record(folder: Path, about: dict[str, Any], summaries: Sequence[Summary]) -> Path:
    """Add a line for each summary to the run folder's record."""
    path = folder / RECORD
    try:
        with path.open("a") as file:
            file.writelines(json.dumps(about | asdict(summary)) + "\n" for summary in summaries)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    return path
