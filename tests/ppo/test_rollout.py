"""Starts, episode sums, and the two ways a network is run."""

import jax
import jax.numpy as jnp
import numpy as np
from gru import Recurrent
from learner import QUICK
from probes import start

from mjxgym.ppo import FeedForward, episodes
from mjxgym.ppo.networks import Output
from mjxgym.ppo.rollout import Start, choose_start


def test_an_env_takes_its_own_start_first_and_never_the_same_twice():
    states = jax.vmap(lambda key: start(jax.random.normal(key, (2,)), key))(jax.random.split(jax.random.key(0), 5))
    rows = jnp.arange(5.0)
    starts = Start(states, Output(rows[:, None], rows[:, None], rows), carry=())
    taken = [choose_start(starts, jnp.full(5, ends)) for ends in range(5)]
    np.testing.assert_array_equal(taken[0].states.obs, states.obs)
    for env in range(5):
        assert len({float(one.states.obs[env, 0]) for one in taken}) == 5
    for one in taken:  # the network's words go with the state they are about
        np.testing.assert_array_equal(one.states.obs, states.obs[one.output.value.astype(int)])


def test_episode_sums_are_those_of_a_plain_loop():
    time, envs, size = 30, 4, 5
    rng = np.random.default_rng(0)
    reward = rng.normal(size=(time, envs)).astype(np.float32)
    ends = rng.uniform(size=(time, envs))
    terminated, truncated = ends < 0.2, ends > 0.8
    broken = terminated & (rng.uniform(size=(time, envs)) < 0.3)
    whole = np.array([True, False, True, False])

    expected, total, length, began = [], np.zeros(envs), np.zeros(envs, int), whole.copy()
    for t in range(time):
        for b in range(envs):
            total[b], length[b] = total[b] + reward[t, b], length[b] + 1
            if terminated[t, b] or truncated[t, b]:
                if not broken[t, b] and (began[b] or terminated[t, b]):
                    expected.append((total[b], length[b]))
                total[b], length[b], began[b] = 0.0, 0, True

    state = jax.vmap(lambda key: start(jnp.zeros(1), key))(jax.random.split(jax.random.key(0), envs))

    def step(tally, now):
        reward, terminated, truncated, broken = now
        nonfinite = state.faults.nonfinite._replace(state=broken)
        faults = state.faults._replace(nonfinite=nonfinite)
        after = state.replace(reward=reward, terminated=terminated, truncated=truncated, faults=faults)
        return episodes.add(tally, after)

    tally, seen = episodes.tally(jnp.asarray(whole), size), []
    for half in (slice(0, 11), slice(11, time)):  # two iterations, so the ring is written twice
        tally, finished = jax.lax.scan(step, tally, (reward[half], terminated[half], truncated[half], broken[half]))
        tally = episodes.remember(tally, finished)
        seen.append(episodes.statistics(tally, finished))
    assert sum(float(stats["episodes"]) for stats in seen) == len(expected) > 2 * size
    every = sum(float(stats["episodes"] * stats["return/mean"]) for stats in seen)
    np.testing.assert_allclose(every, sum(total for total, _ in expected), rtol=1e-5)
    recent = np.mean(expected[-size:], axis=0)
    np.testing.assert_allclose([seen[-1]["return/recent"], seen[-1]["episode_length/recent"]], recent, rtol=1e-5)


def test_unrolling_is_stepping_with_the_memory_wiped_at_resets():
    net, time, envs = Recurrent(size=4, action_size=1), 6, 3
    obs = jax.random.normal(jax.random.key(0), (time, envs, 2))
    reset = jax.random.bernoulli(jax.random.key(1), 0.3, (time, envs))
    carry = jax.random.normal(jax.random.key(2), (envs, 4))
    params = net.init(jax.random.key(3), obs[0, 0])
    unrolled = jax.jit(net.unroll, compiler_options=QUICK)(params, obs, carry, reset)
    assert jnp.any(reset)
    step = jax.jit(net.step, compiler_options=QUICK)
    for t in range(time):
        output, carry = step(params, obs[t], jnp.where(reset[t][:, None], 0.0, carry))
        for one, whole in zip(output, unrolled, strict=True):
            np.testing.assert_allclose(one, whole[t], rtol=1e-5, atol=1e-6)


def test_initial_weights_are_those_of_the_source():
    net = FeedForward(action_size=3, hidden=(64, 32), critic_hidden=(16,), initial_log_std=-0.5)
    params = net.init(jax.random.key(0), jnp.zeros(10))["params"]
    assert params["actor"]["Dense_0"]["kernel"].shape == (10, 64)
    assert params["critic"]["Dense_0"]["kernel"].shape == (10, 16)
    np.testing.assert_array_equal(params["log_std"], np.full(3, -0.5, np.float32))
    for layer in (params["actor"]["Dense_0"], params["actor"]["Dense_1"], params["mean"], params["value"]):
        bound = 1.0 / np.sqrt(layer["kernel"].shape[0])
        assert 0.7 * bound < jnp.max(jnp.abs(layer["kernel"])) <= bound
        assert jnp.all(layer["bias"] == 0.0)


def test_bfloat16_keeps_parameters_and_outputs_in_float32():
    exact = FeedForward(action_size=2, hidden=(32,), critic_hidden=None)
    rough = FeedForward(action_size=2, hidden=(32,), critic_hidden=None, dtype="bfloat16")
    obs = jax.random.normal(jax.random.key(0), (5, 4))
    params = rough.init(jax.random.key(1), obs[0])
    one, two = exact.step(params, obs, ())[0], rough.step(params, obs, ())[0]
    assert {leaf.dtype for leaf in jax.tree.leaves((params, two))} == {jnp.dtype("float32")}
    difference = jnp.max(jnp.abs(one.mean - two.mean))
    assert 0.0 < difference < 0.03  # bfloat16 has 8 bits; the features are of order 1
