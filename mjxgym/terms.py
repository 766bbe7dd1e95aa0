"""What each reward term contributes: its weight times its mean, and its share of all contributions.

Means are per control step and of a whole iteration: a term whose sign changes within it looks smaller than it is.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

# Shares are taken over a tenth of the run: of the 500 iterations of a usual run, 50.
PARTS = 10
# Of a line of the report, characters.
WIDTH = 100
# A term with more than this share in the last tenth dominates: all others together are a tenth of the reward.
DOMINATING = 0.9
# A term that never has this share is dead. Ant's `death`, -2 once in an episode, is rare but has up to 0.5 %.
DEAD = 0.001


class Shares(NamedTuple):
    """Shares of the sum of |weight x mean term|, by name."""

    last: dict[str, float]  # in the last tenth of the run, largest first
    highest: dict[str, float]  # the largest of the tenths

    @property
    def dominating(self) -> list[str]:
        """At most one name; none where there is only one term."""
        return [name for name, share in self.last.items() if share > DOMINATING and len(self.last) > 1]

    @property
    def dead(self) -> list[str]:
        """Terms that have mattered in no tenth of the run."""
        return [name for name, share in self.highest.items() if share < DEAD]


def contributions(columns: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Weight x `reward/<term>` by term, [iterations]; without terms whose weight is 0."""
    named = ((name, weight, columns.get(f"reward/{name}")) for name, weight in weights.items())
    return {name: weight * column for name, weight, column in named if weight and column is not None}


def shares(parts: Mapping[str, np.ndarray]) -> Shares | None:
    """Of [iterations] contributions; None if there are none, or all are 0."""
    if not parts:
        return None
    sizes = np.nan_to_num(np.abs(np.stack(list(parts.values()))))  # [terms, iterations]
    tenths = np.array_split(sizes, min(PARTS, sizes.shape[1]), axis=1)
    sums = np.stack([tenth.sum(axis=1) for tenth in tenths])  # [tenths, terms]
    totals = sums.sum(axis=1, keepdims=True)
    if not totals[-1, 0] > 0:
        return None
    found = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)
    last = dict(zip(parts, found[-1].tolist(), strict=True))
    return Shares(
        last={name: last[name] for name in sorted(last, key=lambda name: -last[name])},
        highest=dict(zip(parts, found.max(axis=0).tolist(), strict=True)),
    )


def report(parts: Mapping[str, np.ndarray]) -> list[str]:
    """Lines for the end of training; none where there is nothing to share out."""
    found = shares(parts)
    if found is None:
        return []
    said = [f"{name} {100 * share:.0f} %" for name, share in found.last.items() if share >= 0.01]
    small = [name for name, share in found.last.items() if share < 0.01]
    if small:
        said.append(f"under 1 %: {', '.join(small)}")
    lines = textwrap.wrap(f"shares of |weight x term| in the last tenth of the run: {', '.join(said)}", WIDTH)
    lines += [
        f"{name} dominates: all other terms together are {_percent(1 - found.last[name])}" for name in found.dominating
    ]
    if found.dead:
        lines.append(f"dead, never above {_percent(DEAD)}: {', '.join(found.dead)}")
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
