"""Two renderers and a film writer: a program that `render.py` starts, one process per film.

    python -P renderers.py FOLDER gl|rays        # reads the model and the scene in FOLDER, writes the film there

It imports no part of mjxgym, starts in under a second, and may crash without harming anybody: OpenGL libraries do.
Which OpenGL it is, the environment variable MUJOCO_GL says. Axes: T frames, W worlds, one tile each.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import mujoco
import numpy as np

# In the folder.
MODEL, SCENE, FILM = "model.mjb", "scene.npz", "film.mp4"
# What MuJoCo's OpenGL renderer costs on a CPU, Mesa's llvmpipe at 640 x 480: 0.10 s a frame with shadow maps of 4096
# pixels and 4 samples a pixel, 0.03 s with these. A GPU draws either in milliseconds.
SOFTWARE = ("llvmpipe", "softpipe", "swrast", "software")
SOFTWARE_SHADOWS = 1024


class Renderer(Protocol):
    """Draws worlds of one model through one of its cameras, a tile of `height` x `width` pixels each."""

    def draw(self, qpos: np.ndarray) -> np.ndarray:
        """`qpos` [W, nq] -> [W, height, width, 3] uint8."""
        ...

    def close(self) -> None:
        """Let go of the graphics context."""
        ...


class Gl:
    """MuJoCo's own renderer, through the OpenGL that MUJOCO_GL names."""

    def __init__(self, model: mujoco.MjModel, camera: int, worlds: int, height: int, width: int) -> None:
        from OpenGL import GL  # says why, where it cannot be loaded; then MuJoCo has no renderer, and does not

        self._gl = GL
        self._model, self._data, self._camera = model, mujoco.MjData(model), camera
        model.vis.global_.offheight = max(height, model.vis.global_.offheight)
        model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
        self._renderer = mujoco.Renderer(model, height, width)
        if any(word in self._driver().lower() for word in SOFTWARE):
            self._renderer.close()
            model.vis.quality.shadowsize = min(SOFTWARE_SHADOWS, model.vis.quality.shadowsize)
            model.vis.quality.offsamples = 0
            model.mat_reflectance[:] = 0.0
            self._renderer = mujoco.Renderer(model, height, width)

    def draw(self, qpos: np.ndarray) -> np.ndarray:
        return np.stack([self._one(world) for world in qpos])

    def close(self) -> None:
        self._renderer.close()

    def _one(self, qpos: np.ndarray) -> np.ndarray:
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)
        mujoco.mj_tendon(self._model, self._data)
        mujoco.mj_flex(self._model, self._data)
        self._renderer.update_scene(self._data, self._camera)
        return self._renderer.render().copy()

    def _driver(self) -> str:
        return (self._gl.glGetString(self._gl.GL_RENDERER) or b"").decode()


class Rays:
    """MuJoCo Warp's ray tracer: no OpenGL, on CUDA or a CPU; all worlds at once."""

    def __init__(self, model: mujoco.MjModel, camera: int, worlds: int, height: int, width: int) -> None:
        import warp as wp

        wp.config.quiet = True
        from mujoco.mjx.third_party import mujoco_warp as mjw

        # Nothing is stepped here, and Warp refuses some of what only a step would read.
        model.opt.disableflags = model.opt.enableflags = model.opt.noslip_iterations = 0
        model.opt.integrator, model.opt.solver = mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtSolver.mjSOL_NEWTON
        self._wp, self._mjw, self._size = wp, mjw, (worlds, height, width)
        self._model = mjw.put_model(model)
        self._data = mjw.make_data(model, nworld=worlds)
        self._context = mjw.create_render_context(
            model, nworld=worlds, cam_res=(width, height), cam_active=[n == camera for n in range(model.ncam)],
            render_rgb=True, use_shadows=True, render_skybox=True,
        )  # fmt: skip
        self._rgb = wp.zeros(self._size, dtype=wp.vec3)

    def draw(self, qpos: np.ndarray) -> np.ndarray:
        mjw, model, data = self._mjw, self._model, self._data
        self._wp.copy(data.qpos, self._wp.array(qpos, dtype=float))
        for compute in (mjw.kinematics, mjw.com_pos, mjw.camlight):
            compute(model, data)
        mjw.refit_bvh(model, data, self._context)
        mjw.render(model, data, self._context)
        mjw.get_rgb(self._context, 0, self._rgb)
        return (self._rgb.numpy().clip(0.0, 1.0) * 255.0).round().astype(np.uint8)

    def close(self) -> None:
        pass


RENDERERS: dict[str, Any] = {"gl": Gl, "rays": Rays}


def grid(worlds: int) -> tuple[int, int]:
    """(rows, columns) of tiles: as near to a square as it goes, so that a tile has about the whole picture's shape."""
    columns = math.ceil(math.sqrt(worlds))
    return math.ceil(worlds / columns), columns


def tile(pictures: np.ndarray, height: int, width: int) -> np.ndarray:
    """[W, h, w, 3] -> one picture [height, width, 3], row by row from the top left; black where there is none."""
    _, columns = grid(len(pictures))
    high, wide = pictures.shape[1:3]
    whole = np.zeros((height, width, 3), np.uint8)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        whole[row * high : (row + 1) * high, column * wide : (column + 1) * wide] = picture
    return whole


def frames(renderer: Renderer, qpos: np.ndarray, height: int, width: int) -> Iterator[np.ndarray]:
    """The pictures of `qpos` [T, W, nq]; a world whose state is not finite stays where it was last seen."""
    seen = np.nan_to_num(qpos[0], posinf=0.0, neginf=0.0)
    for now in qpos:
        seen = np.where(np.isfinite(now).all(axis=-1, keepdims=True), now, seen)
        yield tile(renderer.draw(seen), height, width)


def write(path: Path, pictures: Iterator[np.ndarray], fps: float) -> None:
    """H.264, which browsers play; ffmpeg comes with a package, so none is needed on the path."""
    import imageio.v2 as imageio

    film: Any
    with imageio.get_writer(path, fps=fps, codec="libx264", quality=8, macro_block_size=2) as film:
        for picture in pictures:
            film.append_data(picture)


def main(folder: Path, kind: str) -> None:
    """Draw what the folder describes."""
    model = mujoco.MjModel.from_binary_path(str(folder / MODEL))
    with np.load(folder / SCENE) as scene:
        qpos, size, camera, fps = scene["qpos"], scene["size"], int(scene["camera"]), float(scene["fps"])
    width, height = map(int, size)
    rows, columns = grid(qpos.shape[1])
    renderer = RENDERERS[kind](model, camera, qpos.shape[1], height // rows, width // columns)
    try:
        write(folder / FILM, frames(renderer, qpos, height, width), fps)
    finally:
        renderer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
