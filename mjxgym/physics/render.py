"""Pictures: states of a model -> a film, with whatever can draw on this machine.

Drawing happens in a process of its own (`renderers.py`), one a film: an OpenGL library that is missing, has no display
or crashes is then a sentence here, and costs the program that asked nothing. Axes: T frames, W worlds, one tile each.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import mujoco
import numpy as np

from mjxgym.physics import renderers

Kind = Literal["auto", "gl", "rays"]
TRACK = "track"  # the camera that is used unless another is named
# A process that has not drawn a frame's worth in this time hangs: the slowest seen took 0.2 s for one world.
SECONDS_PER_TILE = 5.0
SECONDS_TO_START = 180.0  # Warp's kernels are compiled in 15 s to 150 s


class Film(NamedTuple):
    """What was written."""

    path: Path
    renderer: str  # e.g. `OpenGL (egl)`
    seconds: float  # wall time, all told


class Attempt(NamedTuple):
    """One way to draw, tried in turn."""

    name: str
    kind: str  # of `renderers.RENDERERS`
    environment: Mapping[str, str]


def film(
    model: mujoco.MjModel, qpos: np.ndarray, path: Path, fps: float, width: int = 640, height: int = 480,
    camera: str | None = None, renderer: Kind = "auto",
) -> Film:  # fmt: skip
    """Write `qpos` [T, W, nq] as an MP4 (H.264) of `width` x `height` pixels, a tile for each world.

    `camera` is a camera of the model by name; None takes `track`, or the first it has. `gl` is MuJoCo's renderer,
    `rays` MuJoCo Warp's ray tracer, which needs no OpenGL; `auto` takes what works. ValueError for a size or a camera
    that cannot be, RuntimeError, with the reasons, where nothing can draw, OSError if `path` cannot be written.
    """
    began = time.perf_counter()
    check_size(width, height, qpos.shape[1])
    number = camera_id(model, camera)
    reasons = []
    with tempfile.TemporaryDirectory(prefix="mjxgym-film-") as name:
        folder = Path(name)
        mujoco.mj_saveModel(model, str(folder / renderers.MODEL))
        np.savez(folder / renderers.SCENE, qpos=qpos, size=(width, height), camera=number, fps=fps)
        for attempt in attempts(renderer):
            if attempt.kind == "rays" and importlib.util.find_spec("warp") is None:
                reasons.append(f"{attempt.name}: needs Warp, pip install -e '.[warp]'")
                continue
            trouble = _draw(folder, attempt, SECONDS_TO_START + SECONDS_PER_TILE * qpos.shape[0] * qpos.shape[1])
            if trouble is None:
                _move(folder / renderers.FILM, path)
                return Film(path, attempt.name, time.perf_counter() - began)
            reasons.append(f"{attempt.name}: {trouble}")
    raise RuntimeError(f"nothing here can draw ({'; '.join(reasons)})")


def check_size(width: int, height: int, worlds: int = 1) -> None:
    """ValueError if a film cannot have this size."""
    for side, value in (("width", width), ("height", height)):
        if value < 16 or value % 2:
            near = max(16, value + value % 2)
            raise ValueError(f"{side} is {value}; H.264 needs an even number, 16 at least: say {side}={near}")
    rows, columns = renderers.grid(worlds)
    if width // columns < 16 or height // rows < 16:
        raise ValueError(
            f"{worlds} worlds leave each {width // columns} x {height // rows} pixels of {width} x {height}; at least "
            "16 x 16 would do: fewer envs, or a larger width and height"
        )


def camera_id(model: mujoco.MjModel, name: str | None) -> int:
    """The camera's number; ValueError, with those there are, if the model lacks it."""
    known = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_CAMERA, n) or f"(unnamed {n})" for n in range(model.ncam)]
    if not known:
        raise ValueError("the model has no camera: add <camera> to its MJCF")
    if name is None:
        return known.index(TRACK) if TRACK in known else 0
    if name not in known:
        raise ValueError(f"the model has no camera {name!r}; it has {', '.join(known)}")
    return known.index(name)


def attempts(renderer: Kind) -> Iterator[Attempt]:
    """What to try, best first. MUJOCO_GL, if the user set it to something that needs no window, goes first."""
    if renderer not in get_args(Kind):
        raise ValueError(f"renderer={renderer} is not one of {', '.join(get_args(Kind))}")
    wanted = os.environ.get("MUJOCO_GL", "").lower()
    libraries = [wanted, *(one for one in ("egl", "osmesa") if one != wanted)]
    for library in libraries if renderer != "rays" else ():
        if library in ("egl", "osmesa"):
            # Without PYOPENGL_PLATFORM, MuJoCo sets it to fit.
            yield Attempt(f"OpenGL ({library})", "gl", {"MUJOCO_GL": library, "PYOPENGL_PLATFORM": library})
    if renderer != "gl":
        yield Attempt("ray tracer", "rays", {"JAX_PLATFORMS": "cpu"})  # JAX comes with it, and must leave a GPU alone


def _draw(folder: Path, attempt: Attempt, seconds: float) -> str | None:
    """Run the process; None, or what went wrong."""
    command = [sys.executable, "-P", renderers.__file__, str(folder), attempt.kind]  # -P: it lies beside `warp.py`
    try:
        done = subprocess.run(
            command, env={**os.environ, **attempt.environment}, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"gave no film within {seconds:.0f} s"
    if done.returncode == 0:
        return None
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    # A library may talk after the error, in its destructors: the error is the last line that a traceback ends with.
    errors = [line for line in said if "Error" in line.partition(":")[0]]
    return (errors or said or [f"stopped with code {done.returncode}"])[-1][:200]


def _move(made: Path, path: Path) -> None:
    """Over file systems too, and never leaving half a film."""
    draft = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        draft.write_bytes(made.read_bytes())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
