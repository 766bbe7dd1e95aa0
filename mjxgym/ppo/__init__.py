"""PPO with rl_games' mechanics as pure functions; knows `mjxgym.env`, never a task."""

from mjxgym.ppo.config import PPOConfig
from mjxgym.ppo.evaluate import Episodes, evaluate
from mjxgym.ppo.faultbox import Case, Snapshot
from mjxgym.ppo.networks import Asymmetric, FeedForward, Networks, Output, make_networks
from mjxgym.ppo.train import TrainState, init, train_many, train_step

__all__ = [
    "Asymmetric",
    "Case",
    "Episodes",
    "FeedForward",
    "Networks",
    "Output",
    "PPOConfig",
    "Snapshot",
    "TrainState",
    "evaluate",
    "init",
    "make_networks",
    "train_many",
    "train_step",
]
