"""MuJoCo on three engines, behind one interface that knows no task."""

from mjxgym.physics import frames, limits
from mjxgym.physics.data import Data, Overflow
from mjxgym.physics.engine import Engine, Stage
from mjxgym.physics.load import load, models_dir, read_model, resolve
from mjxgym.physics.names import Joints, Names

__all__ = [
    "Data",
    "Engine",
    "Joints",
    "Names",
    "Overflow",
    "Stage",
    "frames",
    "limits",
    "load",
    "models_dir",
    "read_model",
    "resolve",
]
