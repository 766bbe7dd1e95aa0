"""Evaluation reports the first whole episode of each world, and nothing after it."""

import jax
import jax.numpy as jnp
import numpy as np
from learner import CONFIG
from probes import ladder, walk

from mjxgym import ppo
from mjxgym.env import vectorise


def evaluate(env, num_steps, num_envs=6):
    net = ppo.make_networks(CONFIG, jnp.zeros(2), 1)
    params = net.init(jax.random.key(1), jnp.zeros(2))
    return ppo.evaluate(vectorise(env), net, params, None, CONFIG, jax.random.key(0), num_envs, num_steps)


def test_the_first_episode_is_whole_and_the_second_is_left_out():
    for terminates in (True, False):
        played = evaluate(ladder("constant", 5, terminates), num_steps=12)
        np.testing.assert_array_equal(played.returns, 5.0)
        np.testing.assert_array_equal(played.terms.gain, 5.0)
        np.testing.assert_array_equal(played.lengths, 5)
        np.testing.assert_array_equal(played.terminated, terminates)
        np.testing.assert_array_equal(played.truncated, not terminates)
        assert jnp.all(played.finished)
        assert not jnp.any(played.quarantined)


def test_an_episode_longer_than_the_steps_is_not_finished():
    played = evaluate(ladder("constant", 50), num_steps=12)
    np.testing.assert_array_equal(played.lengths, 12)
    assert not jnp.any(played.finished)


def test_the_action_is_the_mean_so_nothing_is_random():
    np.testing.assert_array_equal(*(evaluate(ladder("action decides"), num_steps=12).returns for _ in range(2)))
    assert len(np.unique(evaluate(ladder("action decides"), num_steps=12).returns)) <= 2  # one per side of the coin


def test_a_broken_world_is_marked_and_its_sums_stay_finite():
    played = evaluate(walk(breaks_at=4, fragile=True), num_steps=12)
    assert jnp.all(played.quarantined)
    assert not jnp.any(played.terminated | played.truncated)
    np.testing.assert_array_equal(played.lengths, 4)
    assert jnp.all(jnp.isfinite(played.returns) & (played.returns < 0))
