"""`PPOConfig`: every number of the learner, and the check that they make sense together."""

from __future__ import annotations

import dataclasses
import difflib
import math
from typing import Optional

SCHEDULES = ("constant", "adaptive")
KL_PERIODS = ("minibatch", "epoch")
ACTIVATIONS = ("elu", "relu", "tanh", "swish", "gelu", "leaky_relu")
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """Hyperparameters; the defaults are those of Isaac Gym's Ant (IsaacGymEnvs cfg/train/AntPPO.yaml)."""

    num_steps: int = 16  # T, control steps per env and iteration
    num_epochs: int = 4  # passes over the rollout
    num_minibatches: int = 2  # blocks of whole envs per pass
    learning_rate: float = 3e-4  # of Adam; the first one when the schedule is adaptive
    schedule: str = "adaptive"  # constant | adaptive
    kl_target: float = 0.008  # nats; the adaptive schedule keeps KL(new || old) within a factor 2 of it
    kl_per: str = "minibatch"  # minibatch | epoch: how often the adaptive schedule acts
    min_learning_rate: float = 1e-6
    max_learning_rate: float = 1e-2
    discount: float = 0.99  # per control step
    gae_lambda: float = 0.95
    clip_epsilon: float = 0.2  # of the ratio, and of the value in normalised units
    entropy_coef: float = 0.0
    value_coef: float = 2.0  # the loss has 0.5 * value_coef * value loss, as rl_games
    bounds_coef: float = 1e-4  # pulls the mean action back inside +-bounds_soft
    bounds_soft: float = 1.1  # in units of the action, whose range is [-1, 1]
    reward_scale: float = 0.01  # multiplies the reward for the learner; statistics stay in the task's units
    max_grad_norm: Optional[float] = None  # global norm; None does not clip  # noqa: UP045
    normalise_obs: bool = True
    normalise_value: bool = True
    normalise_advantage: bool = True  # over the whole rollout
    clip_value: bool = True
    obs_clip: float = 5.0  # standard deviations
    hidden: tuple[int, ...] = (256, 128, 64)
    critic_hidden: Optional[tuple[int, ...]] = None  # None: same as hidden  # noqa: UP045
    separate_critic: bool = False  # False: actor and critic share the trunk
    activation: str = "elu"
    initial_log_std: float = 0.0
    dtype: str = "float32"  # of the hidden layers' matmuls; parameters and outputs stay float32
    stagger: bool = True  # start the episode clocks at random phases, or all time limits fall in one iteration
    recent_episodes: int = 100  # finished episodes that `return/recent` averages over, as rl_games prints it

    def check(self, num_envs: int) -> None:
        """Raise ValueError, one sentence that names the key, for values that cannot work with `num_envs` worlds."""
        at_least(1, "num_envs", num_envs)
        for name in ("num_steps", "num_epochs", "num_minibatches", "recent_episodes"):
            at_least(1, f"ppo.{name}", getattr(self, name))
        if num_envs % self.num_minibatches:
            raise ValueError(indivisible(num_envs, self.num_minibatches))
        one_of("ppo.schedule", self.schedule, SCHEDULES)
        one_of("ppo.kl_per", self.kl_per, KL_PERIODS)
        one_of("ppo.activation", self.activation, ACTIVATIONS)
        one_of("ppo.dtype", self.dtype, DTYPES)
        for name in ("discount", "gae_lambda"):
            within(f"ppo.{name}", getattr(self, name), 0.0, 1.0)
        for name in ("learning_rate", "kl_target", "min_learning_rate", "max_learning_rate", "clip_epsilon"):
            positive(f"ppo.{name}", getattr(self, name))
        for name in ("bounds_soft", "reward_scale", "obs_clip"):
            positive(f"ppo.{name}", getattr(self, name))
        for name in ("entropy_coef", "value_coef", "bounds_coef"):
            not_negative(f"ppo.{name}", getattr(self, name))
        if self.max_grad_norm is not None:
            positive("ppo.max_grad_norm", self.max_grad_norm, otherwise="; use null for no clipping")
        if not math.isfinite(self.initial_log_std):
            raise ValueError(f"ppo.initial_log_std is {self.initial_log_std}; it must be finite (0 is a std of 1)")
        if self.min_learning_rate > self.max_learning_rate:
            raise ValueError(
                f"ppo.min_learning_rate is {self.min_learning_rate}, above ppo.max_learning_rate "
                f"{self.max_learning_rate}; exchange them"
            )
        low, high = self.min_learning_rate, self.max_learning_rate
        if self.schedule == "adaptive" and not low <= self.learning_rate <= high:
            raise ValueError(
                f"ppo.learning_rate is {self.learning_rate}, outside the adaptive schedule's [{low}, {high}]; use "
                f"{min(max(self.learning_rate, low), high)}, widen ppo.min_learning_rate or ppo.max_learning_rate, "
                "or set ppo.schedule=constant"
            )
        layers("ppo.hidden", self.hidden)
        if self.critic_hidden is not None:
            layers("ppo.critic_hidden", self.critic_hidden)
            if not self.separate_critic:
                raise ValueError(
                    f"ppo.critic_hidden is {self.critic_hidden} but the critic shares the actor's trunk; set "
                    "ppo.separate_critic=true, or ppo.critic_hidden=null"
                )


def at_least(low: int, key: str, value: int) -> None:
    """Whole numbers from `low` up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{key} is {value!r}; it must be a whole number of at least {low}")


def positive(key: str, value: float, otherwise: str = "") -> None:
    """Finite and above zero."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{key} is {value}; it must be finite and above 0{otherwise}")


def not_negative(key: str, value: float) -> None:
    """Finite and not below zero."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{key} is {value}; it must be finite and at least 0 (0 switches the term off)")


def within(key: str, value: float, low: float, high: float) -> None:
    """In the closed interval; NaN is outside."""
    if not low <= value <= high:
        nearest = "" if math.isnan(value) else f"; the nearest value is {min(max(value, low), high)}"
        raise ValueError(f"{key} is {value}; it must lie in [{low}, {high}]{nearest}")


def one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    """One of the names; the message offers the nearest."""
    if value not in choices:
        near = difflib.get_close_matches(str(value).lower(), choices, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{key} is {value!r}; it must be one of {', '.join(choices)}{hint}")


def layers(key: str, widths: tuple[int, ...]) -> None:
    """A non-empty tuple of layer widths."""
    if not isinstance(widths, tuple) or not widths:
        raise ValueError(f"{key} is {widths!r}; it must be a tuple with at least one layer width, e.g. (256, 128, 64)")
    for width in widths:
        at_least(1, f"a layer width in {key}={widths}", width)


def indivisible(num_envs: int, num_minibatches: int) -> str:
    """Says why the split fails and which numbers next to these work."""
    below = num_envs - num_envs % num_minibatches
    nearest = " or ".join(str(count) for count in (below, below + num_minibatches) if count)
    divisors = [count for count in range(1, num_envs + 1) if num_envs % count == 0]
    closest = sorted(sorted(divisors, key=lambda count: abs(count - num_minibatches))[:4])
    return (
        f"num_envs is {num_envs}, not divisible into ppo.num_minibatches={num_minibatches} blocks of whole envs; "
        f"use num_envs={nearest}, or ppo.num_minibatches={' or '.join(map(str, closest))}"
    )
