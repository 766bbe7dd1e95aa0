"""`examples/library_use.py` runs as it stands, and what it prints is true. (`test_ant_onnx.py` has the other one.)"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.sample]
EXAMPLE = Path(__file__).parents[1] / "examples" / "library_use.py"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the example leaves behind."""
    with jax.numpy_rank_promotion("allow"):  # evosax broadcasts as NumPy does
        return runpy.run_path(str(EXAMPLE))


def test_the_learner_learns(names: dict[str, Any]):
    # With 5 other keys: 189.4 to 189.6 of 200 steps; what is lost goes to bringing the pole upright.
    assert names["before"] < 50.0
    assert names["after"] > 180.0


def test_the_rollout_ends_episodes_and_begins_new_ones(names: dict[str, Any]):
    ended = np.asarray(names["terminated"] | names["truncated"])
    assert names["reward"].shape == ended.shape == (names["num_steps"], names["num_envs"])
    assert np.all(np.sum(ended, axis=0) >= names["num_steps"] // names["env"].episode_length)
    assert np.all(np.isfinite(names["reward"]))


def test_the_derivative_equals_finite_differences(names: dict[str, Any]):
    # float32 has 1e-7 of a cost of about 1, over a difference of 0.02.
    np.testing.assert_allclose(names["slope"], names["differences"], rtol=1e-3)
    assert abs(names["slope"]) > 0.1


def test_what_has_no_derivative_says_so(names: dict[str, Any]):
    reverse, engine = names["refusals"]
    assert 'iterations="4"' in reverse
    assert engine.startswith("engine=c has no derivatives")
