"""Films of a model's states, by both renderers, with and without OpenGL; no display, no ffmpeg on the path."""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import imageio.v3 as iio
import mujoco
import numpy as np
import pytest

from mjxgym.physics import render, renderers
from mjxgym.physics.load import read_model

WIDTH, HEIGHT, FPS = 96, 64, 25.0
# A red ball in a blue room, and nothing else to be seen; the camera that comes with it stands still.
BALL = """
<mujoco>
  <asset><texture type="skybox" builtin="flat" rgb1="0 0 1" rgb2="0 0 1" width="16" height="16"/></asset>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <worldbody>
    {camera}
    <body name="ball" pos="0 0 1" euler="90 0 30"><freejoint/><geom size="0.2" rgba="1 0 0 1"/></body>
  </worldbody>
</mujoco>
"""
STILL = '<camera name="still" pos="0 -2 1" xyaxes="1 0 0 0 0 1"/>'
# imageio forks to read a film, which JAX, loaded by other tests, warns of.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning")
needs_warp = pytest.mark.skipif(importlib.util.find_spec("warp") is None, reason="needs Warp")


@pytest.fixture(scope="module")
def ball() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(BALL.format(camera=STILL))


@pytest.fixture
def no_gl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any OpenGL: PyOpenGL cannot load it."""
    package = tmp_path / "without" / "OpenGL"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no OpenGL on this machine')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def no_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("IMAGEIO_FFMPEG_EXE", raising=False)


def moving(ball: mujoco.MjModel, frames: int = 3) -> np.ndarray:
    """qpos [frames, 2, 7]: world 0 moves right by 0.2 m a frame, world 1 stands left of the middle."""
    qpos = np.tile(ball.qpos0, (frames, 2, 1))
    qpos[:, 0, 0] = 0.2 * np.arange(frames)
    qpos[:, 1, 0] = -0.3
    return qpos


def red(picture: np.ndarray) -> np.ndarray:
    """(row, column) of the middle of what is more red than blue."""
    mask = picture[..., 0].astype(int) > picture[..., 2].astype(int) + 50
    assert mask.any()
    return np.argwhere(mask).mean(axis=0)


def check(film: render.Film, frames: int = 3) -> None:
    """The file is a film of `moving`."""
    pictures = iio.imread(film.path)
    assert pictures.shape == (frames, HEIGHT, WIDTH, 3)
    assert iio.immeta(film.path)["fps"] == FPS
    # Two tiles side by side, each WIDTH / 2 wide, full height.
    half = WIDTH // 2
    places = np.array([[red(one[:, :half]), red(one[:, half:])] for one in pictures])
    np.testing.assert_allclose(places[..., 0], HEIGHT / 2 - 0.5, atol=1.5)  # at the camera's height
    # 45 degrees over HEIGHT pixels at a distance of 2 m (1.8 m to the near side): 0.2 m are 7.7 pixels.
    per_metre = HEIGHT / (2 * 2.0 * np.tan(np.deg2rad(22.5)))
    np.testing.assert_allclose(places[:, 0, 1] - half / 2, 0.2 * per_metre * np.arange(frames), atol=2.5)
    np.testing.assert_allclose(places[:, 1, 1] - half / 2, -0.3 * per_metre, atol=2.5)


def test_a_film_shows_every_world_where_it_is(ball: mujoco.MjModel, tmp_path: Path, no_ffmpeg: None):
    """By whatever this machine has, with no display asked for."""
    film = render.film(ball, moving(ball), tmp_path / "film.mp4", FPS, WIDTH, HEIGHT)
    assert film.path == tmp_path / "film.mp4"
    check(film)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.mp4"]  # no drafts


@needs_warp
def test_without_opengl_rays_are_traced(ball: mujoco.MjModel, tmp_path: Path, no_gl: None, no_ffmpeg: None):
    film = render.film(ball, moving(ball), tmp_path / "film.mp4", FPS, WIDTH, HEIGHT)
    assert film.renderer == "ray tracer"
    check(film)


@needs_warp
def test_rays_are_traced_whatever_a_step_would_need(ball: mujoco.MjModel, tmp_path: Path):
    """Engine c switches MuJoCo's automatic reset off, which Warp refuses to step; there is nothing to step."""
    model = copy.copy(ball)
    model.opt.disableflags = mujoco.mjtDisableBit.mjDSBL_AUTORESET
    model.opt.integrator, model.opt.solver = mujoco.mjtIntegrator.mjINT_IMPLICIT, mujoco.mjtSolver.mjSOL_PGS
    model.opt.noslip_iterations = 3
    check(render.film(model, moving(ball), tmp_path / "film.mp4", FPS, WIDTH, HEIGHT, renderer="rays"))


def test_where_nothing_can_draw_every_reason_is_told(ball: mujoco.MjModel, tmp_path: Path, no_gl: None):
    with pytest.raises(RuntimeError) as caught:
        render.film(ball, moving(ball), tmp_path / "film.mp4", FPS, WIDTH, HEIGHT, renderer="gl")
    said = str(caught.value)
    assert "\n" not in said
    for library in ("egl", "osmesa"):
        assert f"OpenGL ({library}): ImportError: no OpenGL on this machine" in said
    assert not list(tmp_path.glob("*.mp4"))


def test_a_renderer_that_crashes_is_a_sentence(ball: mujoco.MjModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program = tmp_path / "crash.py"
    program.write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr(renderers, "__file__", str(program))
    with pytest.raises(RuntimeError, match=r"nothing here can draw .*stopped with code -11"):
        render.film(ball, moving(ball), tmp_path / "film.mp4", FPS, WIDTH, HEIGHT, renderer="gl")


def test_the_users_opengl_is_tried_first(monkeypatch: pytest.MonkeyPatch):
    def names(renderer: render.Kind) -> list[str]:
        return [attempt.name for attempt in render.attempts(renderer)]

    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert names("auto") == ["OpenGL (egl)", "OpenGL (osmesa)", "ray tracer"]
    assert names("rays") == ["ray tracer"]
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert names("gl") == ["OpenGL (osmesa)", "OpenGL (egl)"]
    monkeypatch.setenv("MUJOCO_GL", "glfw")  # needs a window
    assert names("gl") == ["OpenGL (egl)", "OpenGL (osmesa)"]


@pytest.mark.parametrize(
    ("width", "height", "worlds", "sentence"),
    [
        (641, 480, 1, "width is 641; H.264 needs an even number, 16 at least: say width=642"),
        (640, 3, 1, "say height=16"),
        (640, 480, 10000, "10000 worlds leave each 6 x 4 pixels of 640 x 480"),
    ],
)
def test_a_size_that_cannot_be_says_what_would_do(width: int, height: int, worlds: int, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        render.check_size(width, height, worlds)


def test_a_camera_is_found_by_name(ball: mujoco.MjModel):
    two = mujoco.MjModel.from_xml_string(BALL.format(camera=STILL + STILL.replace("still", "track")))
    assert [render.camera_id(two, name) for name in (None, "still", "track")] == [1, 0, 1]
    assert render.camera_id(ball, None) == 0
    with pytest.raises(ValueError, match="no camera 'stil'; it has still"):
        render.camera_id(ball, "stil")
    with pytest.raises(ValueError, match="the model has no camera"):
        render.camera_id(mujoco.MjModel.from_xml_string(BALL.format(camera="")), None)


def test_a_model_file_without_camera_gets_one_that_sees_what_moves(tmp_path: Path):
    path = tmp_path / "ball.xml"
    path.write_text(BALL.format(camera=""))
    model, bare = read_model(path), mujoco.MjModel.from_xml_path(str(path))
    assert (model.nq, model.nbody, model.ngeom) == (bare.nq, bare.nbody, bare.ngeom)
    np.testing.assert_array_equal(model.body_inertia, bare.body_inertia)
    data = mujoco.MjData(model)
    for shift in (0.0, 3.0):  # it goes along
        data.qpos[0] = shift
        mujoco.mj_forward(model, data)
        to_ball = data.xpos[1] - data.cam_xpos[0]
        ahead = -data.cam_xmat[0].reshape(3, 3)[:, 2]
        np.testing.assert_allclose(to_ball / np.linalg.norm(to_ball), ahead, atol=1e-6)
        np.testing.assert_allclose(data.cam_xmat[0].reshape(3, 3)[2, 0], 0.0, atol=1e-6)  # the horizon is level
        assert np.linalg.norm(to_ball) * np.sin(np.deg2rad(22.5)) > 0.2  # the whole ball is in the picture
        assert data.cam_xpos[0, 2] > data.xpos[1, 2]


class Stamp:
    """Draws each world as its number of the frame, and remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[np.ndarray] = []

    def draw(self, qpos: np.ndarray) -> np.ndarray:
        self.given.append(qpos)
        return np.full((len(qpos), 2, 3, 3), len(self.given), np.uint8)

    def close(self) -> None: ...


def test_a_broken_world_stays_where_it_was_last_seen():
    qpos = np.arange(12.0).reshape(3, 2, 2)
    qpos[0, 1, 0], qpos[2, 0, 1] = np.nan, np.inf
    stamp = Stamp()
    assert len(list(renderers.frames(stamp, qpos, 2, 6))) == 3
    np.testing.assert_array_equal(stamp.given, [[[0, 1], [0, 3]], [[4, 5], [6, 7]], [[4, 5], [10, 11]]])


@pytest.mark.parametrize(
    ("worlds", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 2, 2), (5, 2, 3), (16, 4, 4), (17, 4, 5)]
)
def test_tiles_lie_row_by_row(worlds: int, rows: int, columns: int):
    assert renderers.grid(worlds) == (rows, columns)
    pictures = np.stack([np.full((2, 3, 3), number + 1, np.uint8) for number in range(worlds)])
    whole = renderers.tile(pictures, 2 * rows + 1, 3 * columns)
    numbers = [*range(1, worlds + 1), *[0] * (rows * columns - worlds)]
    np.testing.assert_array_equal(whole[:-1:2, ::3, 0], np.reshape(numbers, (rows, columns)))
    assert not whole[-1].any()


def test_the_program_imports_no_part_of_mjxgym():
    code = "import sys, runpy; runpy.run_path(sys.argv[1]); print([m for m in sys.modules if m.startswith('mjxgym')])"
    done = subprocess.run([sys.executable, "-c", code, renderers.__file__], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
