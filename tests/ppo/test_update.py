"""One pass over two minibatches: the learning rate it leaves, and what a gradient that is not a number may change."""

import jax
import jax.numpy as jnp
import numpy as np
from learner import QUICK
from test_loss import ENVS, NET, batch

from mjxgym.ppo import PPOConfig
from mjxgym.ppo.update import Learner, Policy, improve, optimiser

CONFIG = PPOConfig(num_epochs=1, num_minibatches=2, learning_rate=1e-4)


def run(params, rows, opt_state):
    output = NET.unroll(params, rows.obs, (), rows.began)
    learner = Learner(params, opt_state, jnp.float32(CONFIG.learning_rate), Policy(output.mean, output.log_std))
    return improve(NET, CONFIG, None, rows, learner)


def improved(poison):
    """`poison` [B] bool: envs whose value target is infinite."""
    params, rows = jax.jit(batch)()
    rows = rows._replace(target=jnp.where(poison[None], jnp.inf, rows.target))
    learner, report = jax.jit(run, compiler_options=QUICK)(params, rows, optimiser(CONFIG).init(params))
    return params, learner, report


def test_the_rate_acts_after_each_minibatch_and_the_first_visit_has_no_kl():
    _, learner, report = improved(np.zeros(ENVS, bool))
    np.testing.assert_allclose(report.kl[0, 0], 0.0, atol=1e-6)
    assert 0.0 < report.kl[0, 1] < 0.5 * CONFIG.kl_target  # one step of 1e-4 later
    np.testing.assert_allclose(learner.learning_rate, 1e-4 * 1.5 * 1.5, rtol=1e-6)


def test_a_first_adam_step_moves_each_parameter_by_the_learning_rate():
    first_only = np.arange(ENVS) >= ENVS // 2  # the second block is skipped, so one step remains
    before, learner, report = improved(first_only)
    np.testing.assert_array_equal(report.finite, [[True, False]])
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(learner.params), strict=True):
        np.testing.assert_allclose(jnp.abs(new - old), 1e-4, rtol=0.02)  # m / sqrt(v) is the gradient's sign


def test_a_gradient_that_is_not_a_number_is_skipped_and_reported():
    before, learner, report = improved(np.ones(ENVS, bool))
    np.testing.assert_array_equal(report.finite, [[False, False]])
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(learner.params), strict=True):
        np.testing.assert_array_equal(old, new)
    assert learner.learning_rate == np.float32(CONFIG.learning_rate)
    assert all(jnp.all(leaf == 0) for leaf in jax.tree.leaves(learner.opt_state))
