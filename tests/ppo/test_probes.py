"""What PPO must learn on each rung; the first rung to fail says which part is broken."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from gru import Recurrent
from learner import CONFIG, learn
from probes import Hidden, Remember, Sight, ladder

DISCOUNT = CONFIG.discount
PHASES = np.array([0.0, 0.2, 0.5, 0.8, 0.98], np.float32)


def obs(signs, phases):
    return jnp.stack([jnp.asarray(signs, jnp.float32), jnp.asarray(phases, jnp.float32)], axis=-1)


@pytest.mark.parametrize("length", [50, 48])  # 48 is a whole number of rollouts, 50 is not
def test_a_time_limit_does_not_change_the_value_of_a_constant_reward(length):
    config = dataclasses.replace(CONFIG, schedule="constant", learning_rate=1e-2)
    learned = learn(ladder("constant", length, terminates=False), 3000, config=config)
    _, value = learned.look(obs(np.ones(5), PHASES))
    # The value climbs slowly: over 10 seeds it was at most 4.2 % away. A limit taken for an end gives at most 40.
    np.testing.assert_allclose(value, 1.0 / (1.0 - DISCOUNT), rtol=0.15)


def test_a_termination_ends_the_sum():
    learned = learn(ladder("constant", 50, terminates=True), 3000)
    _, value = learned.look(obs(np.ones(5), PHASES))
    steps_left = 50 * (1.0 - PHASES)
    # Over 10 seeds at most 0.8 away. An end taken for a limit gives 100, at least 60 away.
    np.testing.assert_allclose(value, (1.0 - DISCOUNT**steps_left) / (1.0 - DISCOUNT), atol=2.5)


def test_the_value_depends_on_the_obs():
    _, value = learn(ladder("obs decides"), 100).look(obs([1, -1], [0, 0]))
    np.testing.assert_allclose(value, [1.0, -1.0], atol=0.05)


def test_a_delayed_reward_is_discounted():
    _, value = learn(ladder("delayed", 2), 100).look(obs([1, 1], [0, 0.5]))
    np.testing.assert_allclose(value, [DISCOUNT, 1.0], atol=0.05)


def test_the_action_is_learned():
    action, _ = learn(ladder("action decides"), 100).look(obs([1, -1], [0, 0]))
    np.testing.assert_allclose(action, [0.5, 0.5], atol=0.05)


def test_the_action_depends_on_the_obs():
    learned = learn(ladder("both"), 100)
    action, _ = learned.look(obs([1, -1], [0, 0]))
    np.testing.assert_allclose(action, [0.5, -0.5], atol=0.05)
    assert learned.metrics["return/mean"][-1] > -0.01
    assert learned.metrics["return/mean"][0] < -0.5  # std 1 around 0: expected -1.25


def test_an_asymmetric_critic_knows_what_the_actor_does_not():
    action, value = learn(Hidden(), 100).look(Sight(jnp.ones((2, 2)), jnp.array([[1.0], [-1.0]])))
    assert action[0] == action[1]
    np.testing.assert_allclose(value, [0.75, -1.25], atol=0.1)  # the blind best is action 0, which costs 0.25


def test_a_recurrent_policy_remembers_a_cue():
    learned = learn(Remember(), 150, net=Recurrent(size=12, action_size=1))
    assert jnp.mean(learned.metrics["return/mean"][-10:]) > -0.05  # without memory the best is -0.25
