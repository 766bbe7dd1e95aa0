"""Tasks, one file each: a module with a `Config` and `make(config, engine)`. The file's name is the task's name."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from types import ModuleType

# Modules that tasks share; every other file of this folder is a task.
_SHARED = frozenset({"faults", "observe", "rewards"})


def task_names() -> list[str]:
    """The tasks that come with mjxgym, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _SHARED)


def task(name: str) -> ModuleType:
    """The module of a task; ValueError with the nearest name if there is none."""
    known = task_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"env={name} is not a task; the tasks are {', '.join(known)}{hint}")
    return importlib.import_module(f"mjxgym.envs.{name}")
