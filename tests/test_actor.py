"""The acting half of a policy: what is in it, what it computes, and how two are compared."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gru import Recurrent
from jax import export
from probes import Sight

from mjxgym import ppo
from mjxgym.actor import COUNT, SCALES, STEPS, Actor, Traced, difference, differences, trace
from mjxgym.build import Policy
from mjxgym.ppo.normalise import Moments, moments, update

SIZE, ACTIONS = 5, 3
RNG = np.random.default_rng(0)
# Far from 0, of unequal spread, so that a normaliser that is forgotten is seen.
SAMPLES = (RNG.normal(size=(200, SIZE)) * [1.0, 10.0, 0.1, 3.0, 1.0] + [5.0, 0.0, -2.0, 100.0, 0.0]).astype(np.float32)


def stats_of(samples: Any) -> Moments:
    found = update(moments(jax.tree.map(lambda leaf: leaf[0], samples)), samples, jnp.ones(200, bool))
    assert found is not None
    return found


def actor_of(net: Any, example: Any = SAMPLES[0], normalised: bool = True, obs_clip: float = 5.0) -> Actor:
    return Actor(net, example, normalised, obs_clip)


def run(traced: Traced) -> Any:
    """The program as a function of arrays of any batch."""
    return export.export(jax.jit(traced.step))(*traced.shapes).call


def feed_forward(**changes: Any) -> Any:
    settings = {"hidden": (16, 8), "separate_critic": True, "critic_hidden": (7,)} | changes
    return ppo.make_networks(ppo.PPOConfig(**settings), SAMPLES[0], ACTIONS)


def test_the_action_is_what_numpy_makes_of_the_parameters():
    net = feed_forward(activation="tanh")
    params = jax.tree.map(lambda leaf: 2.0 * leaf + 0.1, net.init(jax.random.key(0), SAMPLES[0]))
    policy = Policy(params, stats_of(SAMPLES))
    obs = np.concatenate([SAMPLES[:50], 30.0 * SAMPLES[:50]])

    mean, var = SAMPLES.astype(np.float64).mean(0), SAMPLES.astype(np.float64).var(0)
    x = np.clip((obs - mean) / np.sqrt(var + 1e-5), -5.0, 5.0)
    layers = jax.tree.map(np.float64, params["params"])
    for name in ("Dense_0", "Dense_1"):
        x = np.tanh(x @ layers["actor"][name]["kernel"] + layers["actor"][name]["bias"])
    x = x @ layers["mean"]["kernel"] + layers["mean"]["bias"]
    assert np.any(np.abs(x) > 1.0)  # the clip is seen

    [action] = actor_of(net).step(policy, jnp.asarray(obs))
    np.testing.assert_allclose(action, np.clip(x, -1.0, 1.0), atol=1e-5)


def test_without_normaliser_the_observation_goes_in_as_it_is():
    net = feed_forward()
    params = net.init(jax.random.key(0), SAMPLES[0])
    actor = actor_of(net, normalised=False)
    assert actor.shapes().obs_stats is None
    [action] = actor.step(Policy(params, None), SAMPLES[:, :] * 0.1)
    expected = net.step(params, SAMPLES * 0.1, ())[0].mean
    np.testing.assert_array_equal(action, jnp.clip(expected, -1.0, 1.0))
    mean, std = actor.spread(Policy(params, None))
    assert (set(mean), set(std)) == ({0.0}, {1.0})


def test_the_critic_is_not_in_the_program():
    actor = actor_of(feed_forward())
    policy = Policy(actor.net.init(jax.random.key(0), SAMPLES[0]), stats_of(SAMPLES))
    traced = trace(actor, policy)
    assert set(traced.constants) == {
        *(f"params.params.{layer}.{part}" for layer in ("actor.Dense_0", "actor.Dense_1", "mean")
          for part in ("kernel", "bias")),
        "obs_stats.mean", "obs_stats.mean_low", "obs_stats.var",
    }  # fmt: skip
    assert ",7]" not in str(traced.program.jaxpr)  # the critic's layer is 7 wide
    step = run(traced)
    for size in (1, 4):
        np.testing.assert_allclose(step(SAMPLES[:size]), actor.step(policy, SAMPLES[:size]), atol=1e-6)


def test_what_only_the_critic_sees_is_no_input():
    seen = Sight(policy=SAMPLES, critic=RNG.normal(size=(200, 2)).astype(np.float32))
    example = jax.tree.map(lambda leaf: leaf[0], seen)
    net = ppo.make_networks(ppo.PPOConfig(hidden=(16,)), example, ACTIONS)
    assert isinstance(net, ppo.Asymmetric)
    actor = actor_of(net, example)
    policy = Policy(net.init(jax.random.key(0), example), stats_of(seen))
    traced = trace(actor, policy)
    assert [shape.shape[1:] for shape in traced.shapes] == [(SIZE,)]
    assert not any("critic" in name for name in traced.constants)

    [action] = run(traced)(SAMPLES)
    stats = stats_of(SAMPLES)
    unit = jnp.clip((SAMPLES - stats.mean[None]) / jnp.sqrt(stats.var + 1e-5)[None], -5.0, 5.0)
    expected = net.step(policy.params, Sight(unit, seen.critic), ())[0].mean  # whatever the critic sees
    np.testing.assert_allclose(action, jnp.clip(expected, -1.0, 1.0), atol=1e-5)
    assert actor.spread(policy)[0].shape == (SIZE,)


def test_parts_of_an_observation_go_in_side_by_side():
    seen = {"arm": SAMPLES[:, :2], "leg": SAMPLES[:, 2:]}
    example = jax.tree.map(lambda leaf: leaf[0], seen)
    net = ppo.make_networks(ppo.PPOConfig(hidden=(16,)), example, ACTIONS)
    policy = Policy(net.init(jax.random.key(0), example), stats_of(seen))
    plain = Policy(policy.params, stats_of(SAMPLES))
    [action] = run(trace(actor_of(net, example), policy))(SAMPLES)
    np.testing.assert_allclose(action, actor_of(net).step(plain, SAMPLES)[0], atol=1e-6)


def recurrent() -> tuple[Actor, Policy]:
    actor = actor_of(Recurrent(4, ACTIONS))
    return actor, Policy(actor.net.init(jax.random.key(0), SAMPLES[0]), stats_of(SAMPLES))


def test_a_memory_goes_in_and_comes_out():
    actor, policy = recurrent()
    assert (actor.inputs, actor.outputs) == (("obs", "carry_0"), ("action", "next_carry_0"))
    assert [leaf.tolist() for leaf in actor.memory] == [[0.0] * 4]
    step = run(trace(actor, policy))
    carry = memory = np.zeros((200, 4), np.float32)
    stats = stats_of(SAMPLES)
    for scale in (1.0, 0.5, -1.0):
        obs = scale * SAMPLES
        unit = jnp.clip((obs - stats.mean[None]) / jnp.sqrt(stats.var + 1e-5)[None], -5.0, 5.0)
        output, carry = actor.net.step(policy.params, unit, carry)
        action, memory = step(obs, memory)
        np.testing.assert_allclose(action, jnp.clip(output.mean, -1.0, 1.0), atol=1e-5)
        np.testing.assert_allclose(memory, carry, atol=1e-5)


def test_a_policy_does_not_differ_from_itself():
    for actor, policy in (recurrent(), (actor_of(net := feed_forward()), None)):
        policy = policy or Policy(net.init(jax.random.key(0), SAMPLES[0]), stats_of(SAMPLES))
        step = actor.compiled(policy)
        assert differences(step, step, actor, policy) == dict.fromkeys(SCALES, 0.0)


def test_a_difference_is_found_wherever_it_is():
    actor, policy = recurrent()
    step = actor.compiled(policy)
    seen = []

    def off_in_action(obs, memory):
        seen.append(obs)
        action, after = step(obs, memory)
        return np.asarray(action) + 1e-3 * (np.abs(obs[:, :1] - 5.0) > 20.0), after  # 20 spreads from the mean

    found = differences(off_in_action, step, actor, policy)
    assert found[1] < 1e-6
    assert found[100] == pytest.approx(1e-3, rel=0.01)
    # Both batch sizes, with COUNT observations in single file and as many worlds at once, from around the mean.
    assert sum(len(obs) for obs in seen if len(obs) == 1) == COUNT * len(SCALES)
    assert sum(len(obs) == COUNT for obs in seen) == STEPS * len(SCALES)
    first = next(obs for obs in seen if len(obs) == COUNT)
    np.testing.assert_allclose(first.mean(0), SAMPLES.mean(0), atol=0.2 * SAMPLES.std(0).max())
    np.testing.assert_allclose(first.std(0), SAMPLES.std(0), rtol=0.1)

    def forgets(obs, memory):
        return step(obs, np.zeros_like(memory))

    assert min(differences(forgets, step, actor, policy).values()) > 1e-3
    single = difference(forgets, step, SAMPLES[None, :1], actor.memory)
    assert single == 0.0  # the first step of an episode has nothing to forget


def test_a_number_that_is_none_is_no_agreement():
    actor, policy = recurrent()
    step = actor.compiled(policy)
    assert np.isnan(difference(lambda obs, c: (np.nan * obs[:, :3], c), step, SAMPLES[None], actor.memory))


def test_rounding_is_given_room_only_where_inputs_are_large():
    net = feed_forward()
    assert actor_of(net).tolerances == {1: 1e-5, 100: 1e-5}
    assert actor_of(net, obs_clip=10.0).tolerances == {1: 1e-5, 100: 1e-5}
    assert actor_of(net, obs_clip=100.0).tolerances == pytest.approx({1: 1e-5, 100: 1e-4})
    assert actor_of(net, normalised=False).tolerances == pytest.approx({1: 1e-5, 100: 5e-4})
