"""Every setting that cannot work is named, with what would."""

import dataclasses

import pytest

from mjxgym.ppo import PPOConfig

BAD = [
    ({"num_steps": 0}, ["ppo.num_steps is 0", "at least 1"]),
    ({"num_epochs": -1}, ["ppo.num_epochs is -1"]),
    ({"num_steps": 2.5}, ["ppo.num_steps is 2.5", "whole number"]),
    ({"num_minibatches": 7}, ["num_envs is 64", "ppo.num_minibatches=7", "num_envs=63 or 70", "8"]),
    ({"num_minibatches": 128}, ["num_envs=128", "ppo.num_minibatches=", "64"]),
    ({"learning_rate": -1e-3}, ["ppo.learning_rate is -0.001", "above 0"]),
    ({"learning_rate": float("nan")}, ["ppo.learning_rate is nan"]),
    ({"learning_rate": 0.1}, ["ppo.learning_rate is 0.1", "use 0.01", "ppo.schedule=constant"]),
    ({"min_learning_rate": 0.1}, ["ppo.min_learning_rate is 0.1", "ppo.max_learning_rate"]),
    ({"discount": 1.01}, ["ppo.discount is 1.01", "[0.0, 1.0]", "nearest value is 1.0"]),
    ({"discount": float("nan")}, ["ppo.discount is nan"]),
    ({"gae_lambda": -0.1}, ["ppo.gae_lambda is -0.1", "nearest value is 0.0"]),
    ({"clip_epsilon": 0.0}, ["ppo.clip_epsilon is 0.0"]),
    ({"entropy_coef": -1.0}, ["ppo.entropy_coef is -1.0", "at least 0"]),
    ({"reward_scale": float("inf")}, ["ppo.reward_scale is inf"]),
    ({"max_grad_norm": 0.0}, ["ppo.max_grad_norm is 0.0", "null"]),
    ({"schedule": "adaptiv"}, ["ppo.schedule is 'adaptiv'", "did you mean adaptive?"]),
    ({"kl_per": "batch"}, ["ppo.kl_per is 'batch'", "minibatch"]),
    ({"activation": "Relu"}, ["ppo.activation is 'Relu'", "did you mean relu?"]),
    ({"dtype": "bf16"}, ["ppo.dtype is 'bf16'", "bfloat16"]),
    ({"hidden": ()}, ["ppo.hidden is ()", "at least one"]),
    ({"hidden": (64, 0)}, ["ppo.hidden=(64, 0)", "at least 1"]),
    ({"critic_hidden": (64,)}, ["ppo.critic_hidden is (64,)", "ppo.separate_critic=true"]),
    ({"initial_log_std": float("nan")}, ["ppo.initial_log_std is nan"]),
    ({"recent_episodes": 0}, ["ppo.recent_episodes is 0"]),
]


@pytest.mark.parametrize(("changes", "parts"), BAD, ids=[str(changes) for changes, _ in BAD])
def test_a_bad_value_is_named_with_what_would_do(changes, parts):
    with pytest.raises(ValueError, match=r"num_envs|ppo\.") as error:
        PPOConfig(**changes).check(num_envs=64)
    message = str(error.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message


def test_no_worlds_is_an_error():
    with pytest.raises(ValueError, match="num_envs is 0; it must be a whole number of at least 1"):
        PPOConfig().check(num_envs=0)


def test_the_numbers_offered_do_work():
    for num_envs, minibatches in [(63, 7), (70, 7), (64, 8), (64, 4)]:
        PPOConfig(num_minibatches=minibatches).check(num_envs)


def test_the_defaults_work_and_are_hashable():
    PPOConfig().check(4096)
    assert hash(PPOConfig()) == hash(dataclasses.replace(PPOConfig()))
