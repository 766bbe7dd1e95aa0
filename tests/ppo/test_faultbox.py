"""The box holds the steps that led to the first quarantine of each cause, over rollouts, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mjxgym.ppo import faultbox
from mjxgym.ppo.faultbox import Steps

T, B = 4, 3


class Causes(NamedTuple):
    state: np.ndarray
    diverged: np.ndarray


def steps(iteration: int, **broken: tuple[int, int]) -> Steps:
    """A rollout whose snapshots are 100 x world + step since the beginning; `broken` are (time, world) by cause."""
    clock = T * iteration + np.arange(T)
    flags = {name: np.zeros((T, B), bool) for name in Causes._fields}
    for name, place in broken.items():
        flags[name][place] = True
    kept = {"number": clock[:, None] + 100 * np.arange(B), "pair": np.zeros((T, B, 2), np.float32)}
    return jax.tree.map(jnp.asarray, Steps(kept, Causes(**flags)))


def looked(*rollouts: Steps) -> dict[str, faultbox.Case]:
    look = jax.jit(faultbox.look)
    box = faultbox.empty(jax.eval_shape(lambda: rollouts[0]))
    for iteration, rollout in enumerate(rollouts):
        box = look(box, rollout, jnp.int32(iteration))
    return jax.device_get(box.cases)


def test_nothing_broken_is_no_case():
    assert all(case.length == 0 for case in looked(steps(0), steps(1)).values())


def test_the_last_steps_reach_into_the_rollout_before():
    case = looked(steps(0), steps(1), steps(2, diverged=(1, 2)))["diverged"]
    assert (case.length, case.world, case.iteration) == (T, 2, 2)
    np.testing.assert_array_equal(case.steps["number"], 200 + np.arange(6, 10))  # step 9 broke
    assert case.steps["pair"].shape == (T, 2)


def test_at_the_start_of_a_call_less_is_known():
    case = looked(steps(0, state=(1, 0)))["state"]
    assert case.length == 2
    np.testing.assert_array_equal(case.steps["number"][-2:], [0, 1])


def test_the_first_of_each_cause_stays():
    cases = looked(steps(0, state=(3, 1)), steps(1, state=(0, 0), diverged=(2, 0)), steps(2, diverged=(0, 1)))
    assert (cases["state"].iteration, cases["state"].world) == (0, 1)
    assert (cases["diverged"].iteration, cases["diverged"].world) == (1, 0)
    np.testing.assert_array_equal(cases["diverged"].steps["number"], [3, 4, 5, 6])


def test_the_earliest_of_several_worlds_is_taken():
    rollout = steps(0, state=(2, 0))
    flags = rollout.causes.state.at[1, 2].set(True)
    case = looked(rollout._replace(causes=rollout.causes._replace(state=flags)))["state"]
    assert (case.world, case.length) == (2, 2)
