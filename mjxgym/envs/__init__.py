"""Tasks, one file each: a module with a `Config` and `make(config, engine)`. The file's name is the task's name."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from mjxgym.env import Env
from mjxgym.physics import Engine


class Task(Env, Protocol):
    """What every env of this folder says of itself besides: for measuring, filming and exporting it."""

    @property
    def physics(self) -> Engine:
        """What moves it."""
        ...

    @property
    def config(self) -> Any:
        """Its `Config`; `config.substeps` are the physics steps of a control step."""
        ...

    @property
    def control_dt(self) -> float:
        """Seconds per control step."""
        ...

    @property
    def obs_names(self) -> tuple[tuple[str, int], ...]:
        """(name, size) of the parts of an observation, in order."""
        ...

    @property
    def reward_weights(self) -> Any:
        """NamedTuple of floats: the weights of `State.metrics`."""
        ...


def task_names() -> list[str]:
    """The tasks that come with mjxgym, sorted."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if is_task(path))


@functools.cache
def is_task(path: Path) -> bool:
    """The module defines both `Config` and `make`. It is read, not run: naming the tasks imports none of them."""
    kinds = ast.ClassDef | ast.FunctionDef
    return {"Config", "make"} <= {node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, kinds)}


def task(name: str) -> ModuleType:
    """The module of a task; ValueError with the nearest name if there is none."""
    known = task_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"env={name} is not a task; the tasks are {', '.join(known)}{hint}")
    return importlib.import_module(f"mjxgym.envs.{name}")
