"""A run as a whole: exact repetition, quarantine, what is counted, and what an interruption changes (nothing)."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner import CONFIG, MAX_COUNT, learn, train
from probes import ladder, walk

from mjxgym import ppo
from mjxgym.env import vectorise

# All clocks start at 0, so that a test knows when an episode ends; one minibatch, so that every visit is the first.
TOGETHER = dataclasses.replace(CONFIG, stagger=False, num_steps=8, num_epochs=1, num_minibatches=1)
BROKEN = 3  # the world that breaks, at its third step


def same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


@cache
def broken_run(breaks_at=3, cause="state", poison=True, iterations=1):
    """One world of 8 breaks. -> TrainState and metrics"""
    env = walk(breaks_at, cause, poison)
    net = ppo.make_networks(TOGETHER, jnp.zeros(2), 1)
    ts = ppo.init(vectorise(env), net, TOGETHER, 8, jax.random.key(0))
    ts = ts.replace(states=ts.states.replace(memory=jnp.arange(8) == BROKEN))
    ts, metrics, _ = train(vectorise(env), net, TOGETHER, ts, iterations, MAX_COUNT)
    return ts, {name: row[:iterations] for name, row in metrics.items()}


@pytest.mark.parametrize("cause", ["state", "diverged", "output"])
def test_a_poisoned_world_changes_nothing_but_its_counter(cause):
    masked, _ = broken_run(poison=False)
    poisoned, metrics = broken_run(cause=cause)
    for part in ("params", "opt_state", "obs_stats", "value_stats", "learning_rate"):
        same(getattr(masked, part), getattr(poisoned, part))
        assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(getattr(poisoned, part)))
    counted = {name: float(metrics[f"nonfinite/{name}"][0]) for name in ("state", "diverged", "output", "total")}
    assert counted == {"state": 0.0, "diverged": 0.0, "output": 0.0, cause: 1.0, "total": 1.0}
    assert poisoned.obs_stats.count == poisoned.value_stats.count == 8 * 8 - 1


def test_neighbours_of_a_broken_world_do_not_notice():
    healthy, _ = broken_run(breaks_at=-1)
    broken, _ = broken_run()
    others = np.arange(8) != BROKEN
    np.testing.assert_array_equal(healthy.states.obs[others], broken.states.obs[others])
    np.testing.assert_array_equal(healthy.tally.return_[others], broken.tally.return_[others])
    assert not np.array_equal(healthy.states.obs[BROKEN], broken.states.obs[BROKEN])
    assert broken.states.step_count[BROKEN] == 8 - 3  # a new episode since the break


def test_a_quarantined_episode_is_not_counted():
    _, metrics = broken_run(breaks_at=7, iterations=3)  # 24 steps; the broken world started again after 7
    np.testing.assert_array_equal(metrics["episodes"], [0, 0, 7])
    np.testing.assert_array_equal(jnp.isnan(metrics["return/mean"]), [True, True, False])
    np.testing.assert_array_equal(metrics["episode_length/mean"][2], 20)


def test_overflow_is_counted_by_buffer():
    _, metrics = broken_run()  # the probe's buffer overflows on the first step of each episode: 8, and the broken one's
    assert metrics["overflow/contacts"][0] == metrics["overflow/total"][0] == 8 + 1


def test_same_seed_same_curve_other_seed_other_curve():
    first, again, other = (learn(ladder("both"), 5, seed=seed) for seed in (0, 0, 1))
    same(first.ts, again.ts)
    same(first.metrics, again.metrics)
    assert not np.array_equal(first.metrics["return/mean"], other.metrics["return/mean"])


def test_a_run_cut_in_two_is_the_same_run_and_compiles_once():
    env = vectorise(ladder("constant", 7, terminates=False))
    net = ppo.make_networks(CONFIG, jnp.zeros(2), 1)
    whole = learn(env.env, 40)
    compiled = train._cache_size()
    ts = ppo.init(env, net, CONFIG, 32, jax.random.key(0))
    ts, first, _ = train(env, net, CONFIG, ts, 13, MAX_COUNT)
    ts, second, _ = train(env, net, CONFIG, ts, 27, MAX_COUNT)
    same(whole.ts, ts)
    assert ts.iteration == 40
    assert train._cache_size() == compiled
    for name, row in whole.metrics.items():
        np.testing.assert_array_equal(row, np.concatenate([first[name][:13], second[name][:27]]), err_msg=name)
        assert jnp.all(jnp.isnan(first[name][13:]))


def test_staggered_clocks_spread_the_ends_and_cut_episodes_are_not_counted():
    learned = learn(ladder("constant", 48, terminates=False), 12)
    assert len(np.unique(learned.ts.states.step_count)) > 12  # 32 draws of 48 phases
    episodes = learned.metrics["episodes"]
    assert jnp.sum(episodes[:3]) <= 2  # before step 48 only whole episodes count: those drawn with phase 0
    ended = np.isfinite(learned.metrics["return/mean"])
    np.testing.assert_array_equal(learned.metrics["return/mean"][ended], 48.0)  # none of them short
    np.testing.assert_array_equal(learned.metrics["episode_length/mean"][ended], 48.0)
    assert 32 * (12 * 16 - 96) / 48 <= jnp.sum(episodes) <= 32 * (12 * 16) / 48


def test_the_first_visit_of_a_rollout_is_on_policy():
    """One epoch of one minibatch: the ratio and the KL are those of the rollout's own policy."""
    _, metrics = broken_run(breaks_at=-1, iterations=3)
    np.testing.assert_allclose(metrics["kl"], 0.0, atol=1e-6)
    np.testing.assert_array_equal(metrics["clip_fraction"], 0.0)
    np.testing.assert_allclose(metrics["loss/policy"], 0.0, atol=1e-5)  # minus the mean of normalised advantages


def test_init_checks_the_settings():
    with pytest.raises(ValueError, match="num_envs is 31"):
        learn(ladder("both"), 1, num_envs=31)
