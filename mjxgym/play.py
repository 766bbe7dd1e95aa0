"""Watch a trained policy: python -m mjxgym.play run=runs/ant/2030-01-01_12-00-00-42

  run=PATH                  the run folder
  checkpoint=best|last      which of its checkpoints
  video=FILE.mp4            write a film: RUN/play.mp4 unless named. Without it, MuJoCo's viewer opens where there is a
                            display and envs is 1
  envs=16                   so many worlds, tiled, each from a start of its own
  seconds=10  width=640  height=480  camera=NAME  renderer=auto|gl|rays      of the film
  engine=c|warp|jax         what moves the world: C MuJoCo unless named
  seed=0                    of the starts

The policy plays its mean action.

  replay=RUN/faults/CAUSE.npz   instead of run: the last steps of a world that broke in training, taken again in C
                            MuJoCo: a table, and with video=FILE.mp4 a film in slow motion, the training's engine left

Exit code 2: it cannot be done as asked.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import mujoco
import numpy as np

from mjxgym import build, cache, config, faults, physics, strict, video, xla
from mjxgym.build import Built, Policy
from mjxgym.config import VideoConfig
from mjxgym.physics import render
from mjxgym.ppo import PPOConfig
from mjxgym.strict import UserError

SLOWER = 0.1  # of real time: a fault's last control steps are a fraction of a second


@dataclass(frozen=True)
class Settings:
    """What the command line may say."""

    run: str | None = None
    replay: str | None = None
    checkpoint: Literal["best", "last"] = "best"
    video: str | None = None
    envs: int = 1
    seconds: float = 10.0
    width: int = 640
    height: int = 480
    camera: str | None = None
    renderer: Literal["auto", "gl", "rays"] = "auto"
    engine: str = "c"
    seed: int = 0

    @property
    def film(self) -> VideoConfig:
        """What a film is to be like."""
        return VideoConfig(
            seconds=self.seconds, envs=self.envs, width=self.width, height=self.height, camera=self.camera,
            renderer=self.renderer,
        )  # fmt: skip


class Window(Protocol):
    """MuJoCo's viewer, as far as it is used here."""

    def is_running(self) -> bool:
        """The user has not closed it."""
        ...

    def sync(self) -> None:
        """Show the state."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    xla.tune()
    return strict.exit_code(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """What is asked for."""
    if any(word in ("-h", "--help") for word in argv):
        print(__doc__)
        return 0
    settings = load(argv)
    cache.enable()
    return replay(settings) if settings.replay else play(settings)


def play(settings: Settings) -> int:
    """A run's policy, in the viewer or on film."""
    folder = Path(settings.run or "").expanduser()
    saved = config.load_run(folder)
    if changed := config.changed_since(folder, saved.task):
        print(changed)
    window = settings.video is None and settings.envs == 1 and has_display()
    with strict.building():
        engine = physics.resolve(settings.engine)
    built = video.rebuild(saved, engine)
    video.check(built, settings.film)
    policy, note = build.restore(built, saved, folder, settings.checkpoint)
    print(f"{saved.task}, {settings.checkpoint} checkpoint (iteration {note['iteration']}), engine {engine}")
    if window:
        watch(built, policy, saved.ppo, settings)
    else:
        path = Path(settings.video or folder / "play.mp4").expanduser()
        print(film(path, lambda path: video.film(built, policy, saved.ppo, settings.film, path, settings.seed)))
    return 0


def load(argv: Sequence[str]) -> Settings:
    """The command line's words as types, checked."""
    settings = strict.settings(Settings(), argv)
    if settings.run is None and settings.replay is None:
        raise UserError("run is missing: say run=PATH, the folder of a training run")
    if settings.run is not None and settings.replay is not None:
        raise UserError("run and replay are both given; say the one that is to be seen")
    if settings.video is not None and Path(settings.video).suffix != ".mp4":
        raise UserError(f"video={settings.video} must end in .mp4, which is what is written")
    if not 0 <= settings.seed < 2**32:
        raise UserError(f"seed is {settings.seed}; it must be between 0 and 2**32 - 1")
    settings.film.check()
    return settings


def replay(settings: Settings) -> int:
    """A fault's last steps in C MuJoCo: in words, and on film if asked for."""
    fault = faults.read(Path(settings.replay or "").expanduser())
    states = faults.again(fault)
    print("\n".join(faults.report(fault, states)))
    if settings.video:
        with strict.building():
            render.camera_id(fault.model, settings.camera)
        begun = fault.steps.qpos[:1]
        sides = [np.concatenate([begun, after]) for after in (fault.steps.next_qpos, states.qpos)]
        qpos, fps = np.stack(sides, axis=1), max(1.0, SLOWER / fault.about["control_dt"])

        def make(path: Path) -> render.Film:
            return render.film(
                fault.model, qpos, path, fps, settings.width, settings.height, settings.camera, settings.renderer
            )

        print(film(Path(settings.video).expanduser(), make))
    return 0


def film(path: Path, make: Callable[[Path], render.Film]) -> str:
    """Write a film; what to say of it."""
    if not path.parent.is_dir():
        raise UserError(f"video={path}: there is no folder {path.parent}; make it first")
    try:
        made = make(path)
    except OSError as error:
        raise UserError(f"video={path} cannot be written: {error.strerror or error}") from error
    except RuntimeError as error:
        raise UserError(str(error)) from error
    return f"{path} ({made.renderer}, {made.seconds:.1f} s)"


def has_display() -> bool:
    """A window can be opened here. UserError where the environment names a display that does not answer."""
    named = [name for name in ("DISPLAY", "WAYLAND_DISPLAY") if os.environ.get(name)]
    if sys.platform.startswith("linux") and not named:
        return False
    import glfw

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GLFW's own words for it; ours follow
        alive = glfw.init()
    if not alive:
        display = " and ".join(f"{name}={os.environ[name]}" for name in named) or "this system's display"
        raise UserError(f"no window can be opened on {display}; say video=FILE.mp4 for a film instead")
    return True


def watch(built: Built, policy: Policy, config: PPOConfig, settings: Settings) -> None:
    """MuJoCo's own viewer, in real time, until it is closed."""
    import mujoco.viewer

    env = built.env
    model = env.physics.names.model
    data = mujoco.MjData(model)
    with mujoco.viewer.launch_passive(model, data) as window:
        if model.ncam:
            window.cam.type = mujoco.mjtCamera.mjCAMERA_FIXED
            window.cam.fixedcamid = render.camera_id(model, settings.camera)
        show(window, model, data, poses(built, policy, config, settings.seed), env.control_dt)


def poses(built: Built, policy: Policy, config: PPOConfig, seed: int) -> Iterator[np.ndarray]:
    """qpos [nq] of a world before each control step, for ever; an ended episode is followed by a fresh one."""
    with build.at_home(built.env.physics.name, policy) as policy:
        key = jax.random.key(seed)
        worlds = video.begin(built.vec, built.net, key, 1)
        while True:
            key, fresh = jax.random.split(key)
            qpos, worlds = video.advance(built.vec, built.net, config, policy, worlds, fresh)
            yield np.asarray(qpos[0])


def show(
    window: Window, model: Any, data: Any, poses: Iterator[np.ndarray], dt: float,
    now: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep,
) -> None:  # fmt: skip
    """A pose every `dt` seconds of `now`'s time; where they come too slowly, as fast as they come."""
    due = now()
    while window.is_running():
        data.qpos[:] = next(poses)
        data.time += dt
        mujoco.mj_forward(model, data)
        window.sync()
        due = max(due + dt, now() - dt)  # after a pause, no hurry to make up for it
        sleep(max(0.0, due - now()))


if __name__ == "__main__":
    sys.exit(main())
