"""Episodes to numbers, and what is kept of a return in another engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mjxgym import measure, ppo
from mjxgym.config import task_config
from mjxgym.strict import UserError


class Terms(NamedTuple):
    run: np.ndarray
    fall: np.ndarray


def episodes() -> ppo.Episodes:
    """Four; the physics broke in the third."""
    flags = {"terminated": [1, 0, 0, 1], "truncated": [0, 1, 0, 0], "quarantined": [0, 0, 1, 0]}
    flags = {name: np.array(values, bool) for name, values in flags.items()}
    returns, zero = np.array([1.0, 2.0, 999.0, 6.0], np.float32), np.zeros(4, np.float32)
    return ppo.Episodes(returns, np.array([10, 20, 5, 30]), **flags, terms=Terms(returns, zero))  # type: ignore


def summary(returns: np.ndarray, engine: str = "c") -> measure.Summary:
    none = np.zeros(len(returns), bool)
    return measure.summarise(
        ppo.Episodes(returns, np.ones(len(returns)), ~none, none, none, terms=()),  # type: ignore
        None, engine,
    )  # fmt: skip


def test_the_numbers_are_those_of_sound_episodes():
    found = measure.summarise(episodes(), Terms(2.0, -1.0), "c")  # type: ignore
    assert (found.return_mean, found.return_median, found.length_mean) == (3.0, 2.0, 20.0)
    # t(0.975, 2) = 4.30265; std of 1, 2, 6 is sqrt(7), that of 10, 20, 30 is 10
    assert found.return_interval == pytest.approx(4.30265 * (7 / 3) ** 0.5, rel=1e-5)
    assert found.length_interval == pytest.approx(4.30265 * 10 / 3**0.5, rel=1e-5)
    assert (found.episodes, found.terminated, found.truncated, found.quarantined) == (4, 0.5, 0.25, 0.25)
    assert [(term.name, term.unweighted, term.weighted) for term in found.terms] == [
        ("run", 3.0, 6.0), ("fall", 0.0, 0.0),
    ]  # fmt: skip
    assert measure.summarise(episodes(), None, "c").terms[0].weighted is None


def test_where_all_worlds_broke_there_is_nothing_to_measure():
    broken = episodes()._replace(quarantined=np.ones(4, bool))  # type: ignore
    with pytest.raises(UserError, match="physics broke in all 4 episodes on engine warp"):
        measure.summarise(broken, None, "warp")


def test_the_kept_share_lies_in_its_interval_as_often_as_it_says():
    """400 pairs of samples whose true means are 100 and 80: 95 % of the intervals should hold 0.8."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        found = measure.kept(summary(rng.normal(100, 30, 40)), summary(rng.normal(80, 30, 40)))
        assert found is not None
        assert found.interval is not None
        held += abs(found.share - 0.8) <= found.interval
    # Binomial(400, 0.95) is within 380 +- 13 in 99.7 of 100 cases (3 sigma of 4.4).
    assert 367 <= held <= 393


def test_a_share_needs_a_positive_return_and_two_episodes_an_interval():
    good, bad = summary(np.array([2.0])), summary(np.array([-1.0]))
    assert measure.kept(bad, good) is None
    assert measure.kept(good, bad) == measure.Kept(-0.5, None)
    assert str(measure.Kept(0.987, 0.021)) == "99 ± 2 %"
    assert str(measure.Kept(0.5, None)) == "50 %"


def test_the_record_keeps_every_measurement(tmp_path: Path):
    saved = task_config("cartpole")
    for seed, engines in ((0, ("warp", "c")), (1, ("c",))):
        found = [summary(np.array([1.0, 2.0]), engine) for engine in engines]
        path = measure.record(tmp_path, measure.about(saved, "best", 7, seed), found)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["engine"], line["seed"], line["iteration"]) for line in lines] == [
        ("warp", 0, 7), ("c", 0, 7), ("c", 1, 7),
    ]  # fmt: skip
    with pytest.raises(UserError, match="cannot write"):
        measure.record(tmp_path / "gone", {}, [])
