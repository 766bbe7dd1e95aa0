"""Shares of the reward terms, and which of them are called dead or dominating."""

from __future__ import annotations

import numpy as np
import pytest

from mjxgym import terms


def parts(count: int = 100, **sizes: float) -> dict[str, np.ndarray]:
    """Constant contributions over `count` iterations."""
    return {name: np.full(count, size) for name, size in sizes.items()}


def test_a_contribution_is_the_weight_times_the_mean_and_weight_0_has_none():
    columns = {"reward/run": np.array([1.0, 2.0]), "reward/effort": np.array([3.0, 4.0]), "reward/up": np.ones(2)}
    found = terms.contributions(columns, {"run": 2.0, "effort": -0.5, "up": 0.0, "never_logged": 1.0})
    assert {name: x.tolist() for name, x in found.items()} == {"run": [2.0, 4.0], "effort": [-1.5, -2.0]}


def test_shares_are_of_absolute_values_largest_first():
    found = terms.shares(parts(effort=-1.0, run=3.0))
    assert found is not None
    assert list(found.last.items()) == [("run", pytest.approx(0.75)), ("effort", pytest.approx(0.25))]
    assert found.dominating == found.dead == []


def test_a_term_that_mattered_once_is_not_dead():
    given = parts(run=1.0, up=0.0, death=0.0)
    given["death"][3:6] = -0.1  # while it still fell
    found = terms.shares(given)
    assert found is not None
    assert found.dead == ["up"]
    assert found.last["death"] == 0


def test_a_rare_event_is_not_dead():
    found = terms.shares(parts(run=1.0, death=-2.0 / 1000))  # -2 once in an episode of 1000 steps
    assert found is not None
    assert found.dead == []


def test_a_term_dominates_only_others():
    alone = terms.shares(parts(run=1.0))
    both = terms.shares(parts(run=1.0, effort=-0.05))
    assert alone is not None
    assert both is not None
    assert alone.dominating == []
    assert both.dominating == ["run"]


def test_iterations_without_a_number_count_nothing():
    given = parts(run=1.0, up=1.0)
    given["up"][95:] = np.nan
    found = terms.shares(given)
    assert found is not None
    assert found.last["run"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("given", [{}, parts(run=0.0, up=0.0), parts(run=np.nan)])
def test_there_is_nothing_to_say_about_nothing(given: dict[str, np.ndarray]):
    assert terms.shares(given) is None
    assert terms.report(given) == []


def test_the_report_names_shares_dead_and_dominating():
    assert terms.report(parts(run=1.0, effort=-0.04, up=0.0, heading=0.0)) == [
        "shares of |weight x term| in the last tenth of the run: run 96 %, effort 4 %, under 1 %: up, heading",
        "run dominates: all other terms together are 3.8 %",
        "dead, never above 0.1 %: up, heading",
    ]
    assert len(terms.report(parts(run=1.0, effort=-0.5))) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_a_short_run_has_shares_too(count: int):
    found = terms.shares(parts(count, run=1.0, up=1.0))
    assert found is not None
    assert found.last == {"run": 0.5, "up": 0.5}
