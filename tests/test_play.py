"""`python -m mjxgym.play`: a film where there is no display, the viewer where there is one, a sentence otherwise."""

from __future__ import annotations

import itertools
from pathlib import Path

import imageio.v3 as iio
import mujoco
import numpy as np
import pytest

from mjxgym import build, config, play, train, video

pytestmark = pytest.mark.filterwarnings("ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning")
SMALL = ("seconds=0.2", "width=64", "height=48")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("play") / "run"
    words = ["env=cartpole", "engine=c", "num_envs=8", "ppo.num_steps=8", "ppo.hidden=[8]", "ppo.num_epochs=1"]
    words += ["env.episode_length=10", "iterations=2", "eval.at_end=false", "video.at_end=false", f"run_dir={folder}"]
    assert train.main(words) == 0
    return folder


@pytest.fixture(autouse=True)
def headless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert play.main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


def test_without_a_display_a_film_is_written_beside_the_run(run_dir: Path, capsys: pytest.CaptureFixture[str]):
    assert play.main([f"run={run_dir}", *SMALL]) == 0
    assert "cartpole, best checkpoint (iteration 2), engine c" in capsys.readouterr().out
    # 0.2 s are 12 control steps of 1 / 60 s, every other one shown.
    assert iio.imread(run_dir / "play.mp4").shape == (6, 48, 64, 3)
    assert iio.immeta(run_dir / "play.mp4")["fps"] == pytest.approx(30.0, rel=0.01)  # so it runs in real time


def test_a_crowd_is_tiled(run_dir: Path, tmp_path: Path):
    path = tmp_path / "crowd.mp4"
    assert play.main([f"run={run_dir}", *SMALL, "width=66", "envs=9", f"video={path}", "checkpoint=last"]) == 0
    picture = iio.imread(path)[0]
    sky = picture[[1, 17, 33], :, 2].astype(int)  # the top row of each of 3 x 3 tiles
    assert np.all(sky > 100)


def test_a_film_goes_on_after_an_episodes_end(run_dir: Path):
    """Episodes of 10 steps: each 10th state is a fresh start, the others follow from the one before."""
    saved = config.load_run(run_dir)
    built = video.rebuild(saved, "c")
    policy, _ = build.restore(built, saved, run_dir, "best")
    qpos = video.record(built, policy, saved.ppo, seed=0, num_envs=3, num_steps=35)
    assert qpos.shape == (35, 3, 2)
    moved = np.abs(np.diff(qpos[..., 1], axis=0)).max(axis=1)  # rad a step, of the pole
    starts = {9, 19, 29}
    assert np.abs(qpos[[0, 10, 20, 30]]).max() <= 0.1  # the task's start_pos
    assert len({float(q) for q in qpos[[0, 10, 20, 30], :, 1].ravel()}) == 12  # all drawn anew
    assert max(moved[step] for step in range(34) if step not in starts) < 0.1
    again = video.record(built, policy, saved.ppo, seed=0, num_envs=3, num_steps=35)
    np.testing.assert_array_equal(qpos, again)
    assert not np.array_equal(qpos[0], video.record(built, policy, saved.ppo, 1, 3, 35)[0])


def test_the_viewer_is_shown_what_the_film_shows(run_dir: Path):
    saved = config.load_run(run_dir)
    built = video.rebuild(saved, "c")
    policy, _ = build.restore(built, saved, run_dir, "best")
    found = list(itertools.islice(play.poses(built, policy, saved.ppo, seed=0), 25))
    assert np.shape(found) == (25, 2)
    assert np.abs(np.take(found, [0, 10, 20], axis=0)).max() <= 0.1


class Window:
    """MuJoCo's viewer, as far as `show` knows it: closed after so many looks."""

    def __init__(self, data: mujoco.MjData, looks: int) -> None:
        self._data, self._looks, self.seen = data, looks, []

    def is_running(self) -> bool:
        return len(self.seen) < self._looks

    def sync(self) -> None:
        self.seen.append((float(self._data.qpos[0]), float(self._data.geom_xpos[0, 0])))


def test_the_viewer_keeps_real_time_and_stops_when_it_is_closed():
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body><joint type="slide" axis="1 0 0"/><geom size="1"/></body></worldbody></mujoco>'
    )
    data, clock, slept = mujoco.MjData(model), [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    def now() -> float:
        clock[0] += 0.001  # what looking at a clock takes here
        return clock[0]

    window = Window(data, 5)
    play.show(window, model, data, (np.array([float(n)]) for n in itertools.count()), 0.1, now, sleep)
    assert window.seen == [(n, n) for n in range(5)]  # the geometry follows
    assert clock[0] - 100.0 == pytest.approx(0.5, abs=0.01)
    assert min(slept) > 0.09


def test_a_display_that_does_not_answer_is_a_sentence(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DISPLAY", ":987")
    said = refusal(capsys, f"run={run_dir}")
    assert "no window can be opened on DISPLAY=:987" in said
    assert "video=FILE.mp4" in said
    assert play.main([f"run={run_dir}", *SMALL, f"video={run_dir / 'other.mp4'}"]) == 0  # no window is asked for


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "run is missing"),
        (["run=x", "vide=y"], "did you mean video?"),
        (["run=x", "video=film.gif"], "video=film.gif must end in .mp4"),
        (["run=x", "width=641"], "width is 641; H.264 needs an even number, 16 at least: say width=642"),
        (["run=x", "envs=0"], "envs is 0"),
        (["run=x", "seconds=-1"], "seconds is -1"),
        (["run=x", "seed=-1"], "seed is -1"),
        (["run=x", "renderer=vulkan"], "auto, gl, rays"),
        (["run=/no/such"], "/no/such is not a run folder"),
        (["run={}", "engine=physx"], "engine='physx' is not one of"),
        (["run={}", "camera=front"], "the model has no camera 'front'; it has track"),
        (["run={}", "video=/no/such/film.mp4"], "there is no folder /no/such"),
    ],
)
def test_a_mistake_is_one_sentence(run_dir: Path, words: list[str], part: str, capsys: pytest.CaptureFixture[str]):
    assert part in refusal(capsys, *(word.replace("{}", str(run_dir)) for word in words))


def test_what_cannot_be_written_is_one_sentence(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(video, "film", full)
    assert "film.mp4 cannot be written: No space left" in refusal(capsys, f"run={run_dir}", f"video={run_dir}/film.mp4")
