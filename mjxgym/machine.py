"""What a run ran on: versions, hardware, commit, command line."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

PACKAGES = (
    "mjxgym", "jax", "jaxlib", "mujoco", "mujoco-mjx", "warp-lang", "flax", "optax", "orbax-checkpoint", "numpy",
)  # fmt: skip


def write(path: Path, engine: str) -> None:
    """`record` as a json file."""
    path.write_text(json.dumps(record(engine), indent=1) + "\n")


def record(engine: str) -> dict[str, Any]:
    """All of it, as json can hold it."""
    return {
        "command": command_line(),
        "engine": engine,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": cpu(),
        "cpu_count": os.cpu_count(),
        "device": device(),
        "versions": {name: version(name) for name in PACKAGES},
        "commit": commit(),
    }


def device() -> str:
    """What a run computes on, one device: e.g. `NVIDIA H200`, or the CPU's name."""
    used = jax.devices()[0]
    return cpu() if used.platform == "cpu" else used.device_kind


def cpu() -> str:
    """The processor's name and how many of it this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {cores} cores"


def version(package: str) -> str | None:
    """The installed version; None if it is not."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of this checkout, with -dirty if files differ from it; None outside one."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def command_line() -> list[str]:
    """The words that started this process, as one would type them."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return ["python", "-m", spec.name, *sys.argv[1:]] if spec else list(sys.argv)
