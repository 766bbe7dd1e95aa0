"""The one interface that envs know: `Engine`. `load` makes one from an MJCF file."""

from __future__ import annotations

from typing import Literal, Protocol

from jax import Array

from mjxgym.physics.data import Data
from mjxgym.physics.limits import Limits
from mjxgym.physics.names import Names

Stage = Literal["none", "position", "velocity"]


class Engine(Protocol):
    """A model and the code that moves it. A pytree: pass it through jit, hold it in an env.

    All methods take one world and work under jit, vmap (nested too) and scan.
    """

    @property
    def name(self) -> str:
        """`warp`, `jax` or `c`."""
        ...

    @property
    def names(self) -> Names:
        """Name -> address, for building envs."""
        ...

    @property
    def limits(self) -> Limits:
        """Beyond these a state counts as diverged."""
        ...

    @property
    def sim_dt(self) -> float:
        """Seconds per physics step."""
        ...

    def place(self, qpos: Array, qvel: Array, ctrl: Array | None = None, act: Array | None = None) -> Data:
        """A world put into a state ([nq], [nv], [nu], [na]; the last two default to 0), time 0, all arrays current."""
        ...

    def advance(
        self,
        data: Data,
        ctrl: Array,
        substeps: int,
        refresh: Stage = "none",
        qfrc_applied: Array | None = None,
        xfrc_applied: Array | None = None,
    ) -> Data:
        """`substeps` physics steps with everything given held constant, then the stage `refresh` made current.

        ctrl [nu]; qfrc_applied [nv] joint forces, N or N m; xfrc_applied [nbody, 6] force, then torque, on each body,
        world frame, at its centre of mass. What is current afterwards: see `data.py`.
        """
        ...
