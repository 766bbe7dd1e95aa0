"""`load`: an MJCF file and an engine's name -> an `Engine`."""

from __future__ import annotations

import copy
import difflib
import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import jax
import mujoco
import numpy as np

from mjxgym.physics.data import ARRAYS
from mjxgym.physics.engine import Engine
from mjxgym.physics.names import Names

EngineName = Literal["warp", "jax", "c"]
_MODULES: dict[EngineName, str] = {"warp": "warp", "jax": "mjx", "c": "native"}


def resolve(engine: str = "auto") -> EngineName:
    """The engine that `engine` (auto, warp, jax or c) means on this machine.

    auto = warp on CUDA where Warp is installed, jax on any other accelerator, c on CPU. RuntimeError, with what to
    install, where the engine cannot run here.
    """
    backend = jax.default_backend()
    cuda = backend == "gpu" and "rocm" not in jax.devices()[0].client.platform_version.lower()
    has_warp = importlib.util.find_spec("warp") is not None
    if engine == "auto":
        if backend == "cpu":
            return "c"
        return "warp" if cuda and has_warp else "jax"
    if engine == "warp":
        if not has_warp:
            raise RuntimeError("engine=warp needs Warp: pip install -e '.[warp]', or choose engine=jax or engine=c")
        if backend != "cpu" and not cuda:
            raise RuntimeError(f"engine=warp runs on CUDA and CPU, not on {backend}; choose engine=jax")
        return "warp"
    if engine == "jax":
        return "jax"
    if engine == "c":
        return "c"
    near = difflib.get_close_matches(engine, ("auto", *get_args(EngineName)), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise RuntimeError(f"engine={engine!r} is not one of auto, warp, jax, c{hint}")


def models_dir() -> Path:
    """The folder of the models that come with mjxgym: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).parents[1]
    inside = package / "models"
    return inside if inside.is_dir() else package.parent / "models"


def read_model(path: str | Path) -> mujoco.MjModel:
    """Compile an MJCF; `path` is relative to `models_dir()` or any file. FileNotFoundError, ValueError if it is bad."""
    given = Path(path).expanduser()
    candidates = [given] if given.is_absolute() else [models_dir() / given, given]
    found = next((candidate for candidate in candidates if candidate.is_file()), None)
    if found is None:
        looked = " and ".join(str(candidate) for candidate in candidates)
        raise FileNotFoundError(f"no model file at {looked}; env.model takes a path under models/ or any MJCF file")
    try:
        model = mujoco.MjModel.from_xml_path(str(found))
        return model if model.ncam else _with_camera(found, model)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{found} is not a model MuJoCo can compile: {reason}") from error


def _with_camera(path: Path, model: mujoco.MjModel) -> mujoco.MjModel:
    """The model and a camera `track`, which goes with the first body that moves and shows it whole, from its right."""
    moving = np.flatnonzero(model.body_dofnum)
    if not len(moving):
        return model
    spec = mujoco.MjSpec.from_file(str(path))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    body = int(model.body_rootid[moving[0]])
    # From ahead and to the right, looking a little down; a body's extent fills about half the picture's height.
    back = np.array([0.3, -0.9, 0.35]) / np.linalg.norm([0.3, -0.9, 0.35])
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    to_body = data.xmat[body].reshape(3, 3).T
    eye = data.subtree_com[body] + 2.0 * model.stat.extent * back - data.xpos[body]
    spec.bodies[body].add_camera(
        name="track", mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM, pos=to_body @ eye,
        quat=_quat(to_body @ np.stack([right, np.cross(back, right), back], axis=1)),
    )  # fmt: skip
    return spec.compile()


def _quat(axes: np.ndarray) -> np.ndarray:
    """[3, 3] -> [4], w first."""
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, axes.reshape(-1))
    return quat


def load(model: str | Path | mujoco.MjModel, engine: str = "auto", arrays: Sequence[str] = ARRAYS) -> Engine:
    """An engine for the model: a path under models/, the path of any MJCF file, or a compiled model (copied).

    `arrays` are the derived arrays of `Data` that will be read, all by default; the others will be None.
    """
    for array in arrays:
        if array not in ARRAYS:
            near = difflib.get_close_matches(array, ARRAYS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; those are {', '.join(ARRAYS)}"
            raise ValueError(f"arrays: {array!r} is not a derived array of physics.Data{hint}")
    name = resolve(engine)
    source = "the given model" if isinstance(model, mujoco.MjModel) else str(model)
    mj_model = copy.copy(model) if isinstance(model, mujoco.MjModel) else read_model(model)
    maker = importlib.import_module(f"mjxgym.physics.{_MODULES[name]}")  # imported when asked for: Warp is optional
    return maker.make(mj_model, Names(mj_model, source), tuple(name for name in ARRAYS if name in arrays))
