"""A world that breaks in training leaves a file, from which C MuJoCo takes its last steps again."""

from __future__ import annotations

from pathlib import Path

import imageio.v3 as iio
import jax
import mujoco
import numpy as np
import pytest

from mjxgym import build, faults, play, ppo, train
from mjxgym.config import load_run
from mjxgym.envs.faults import Snapshot, snapshot
from mjxgym.physics.load import models_dir
from mjxgym.physics.replay import from_bytes, replay, to_bytes

TINY = ("env=ant", "engine=c", "num_envs=16", "ppo.num_steps=8", "ppo.hidden=[8]", "ppo.num_epochs=1",
        "eval.at_end=false", "video.at_end=false", "iterations_per_call=4")  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ant too light for its motors: it moves for a while before a joint is faster than its time step can follow."""
    text = (models_dir() / "ant" / "ant.xml").read_text()
    path = tmp_path_factory.mktemp("wild") / "ant.xml"
    path.write_text(text.replace('armature="0.03"', 'armature="0.001"').replace('gear="15"', 'gear="40"'))
    assert path.read_text() != text
    return path


@pytest.fixture(scope="module")
def run_dir(wild: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "run"
    assert train.main([*TINY, f"env.model={wild}", "iterations=8", f"run_dir={folder}"]) == 0
    return folder


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert play.main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


def test_each_cause_leaves_one_file(run_dir: Path):
    assert [path.name for path in (run_dir / faults.FOLDER).iterdir()] == ["diverged.npz"]
    fault = faults.read(run_dir / faults.FOLDER / "diverged.npz")
    about = fault.about
    assert (about["task"], about["engine"], about["cause"], about["substeps"]) == ("ant", "c", "diverged", 2)
    assert about["versions"]["mujoco"] == mujoco.__version__
    assert fault.steps.qpos.shape[1:] == (15,)
    assert np.all(np.diff(fault.steps.step_count) == 1)  # one episode's


def test_the_steps_follow_from_one_another_and_only_the_last_is_broken(run_dir: Path):
    fault = faults.read(run_dir / faults.FOLDER / "diverged.npz")
    steps = fault.steps
    assert len(steps.qpos) > 1
    np.testing.assert_array_equal(steps.qpos[1:], steps.next_qpos[:-1])
    np.testing.assert_array_equal(steps.qvel[1:], steps.next_qvel[:-1])
    np.testing.assert_array_equal(steps.ctrl, np.clip(steps.action, -1.0, 1.0))
    bound = 1.0 / fault.model.opt.timestep  # 1 rad a substep, as physics/limits.py has it
    fast = np.abs(steps.next_qvel[:, 6:]).max(axis=1) > bound
    assert fast[-1]
    assert not fast[:-1].any()


def test_c_mujoco_takes_the_same_steps_again(run_dir: Path):
    """The training's engine was c too, from states in float64 of which the file has float32."""
    fault = faults.read(run_dir / faults.FOLDER / "diverged.npz")
    states = faults.again(fault)
    np.testing.assert_allclose(states.qpos[0], fault.steps.next_qpos[0], atol=1e-4)
    assert not faults.sound(fault.model, states)
    lines = faults.report(fault, states)
    assert len(lines) == 3 + len(fault.steps.qpos) + 1
    assert "C MuJoCo breaks too" in lines[-1]


def test_an_engine_that_breaks_alone_is_named(run_dir: Path):
    fault = faults.read(run_dir / faults.FOLDER / "diverged.npz")
    calm = fault._replace(
        steps=fault.steps._replace(ctrl=np.zeros_like(fault.steps.ctrl), qvel=np.zeros_like(fault.steps.qvel)),
        about=fault.about | {"engine": "warp"},
    )
    assert "C MuJoCo does not break: engine warp" in faults.report(calm, faults.again(calm))[-1]
    output = fault._replace(about=fault.about | {"cause": "output"})
    assert "look at the task's code" in faults.report(output, faults.again(output))[-1]


def test_play_shows_it_in_words_and_on_film(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, film = run_dir / faults.FOLDER / "diverged.npz", tmp_path / "fault.mp4"
    assert play.main([f"replay={file}", f"video={film}", "width=64", "height=48"]) == 0
    said = capsys.readouterr().out
    assert "ant on engine c: world" in said
    assert "C MuJoCo breaks too" in said
    length = len(faults.read(file).steps.qpos)
    assert iio.imread(film).shape == (length + 1, 48, 64, 3)  # the start, and after every step


def test_a_run_goes_on_with_its_first_fault(run_dir: Path, capsys: pytest.CaptureFixture[str]):
    path = run_dir / faults.FOLDER / "diverged.npz"
    before = path.read_bytes()
    assert train.main([f"resume={run_dir}", "iterations=12"]) == 0
    assert path.read_bytes() == before
    assert "a world broke" not in capsys.readouterr().out


def test_only_the_episode_that_broke_is_kept():
    count = np.array([7, 8, 0, 1, 2])
    steps = Snapshot(*(count,) * len(Snapshot._fields))
    for part in faults.since_reset(steps):
        np.testing.assert_array_equal(part, [0, 1, 2])


def test_a_snapshot_changes_nothing_that_is_learned(run_dir: Path):
    """An iteration with and without: only rounding differs, as XLA fuses the two programs differently."""
    built, settings = build.build(load_run(run_dir))
    found = []
    for watched in (None, snapshot):
        ts = ppo.init(built.vec, built.net, settings.ppo, settings.num_envs, jax.random.key(1))
        ts, metrics, cases = ppo.train_many(built.vec, built.net, settings.ppo, ts, 1, 1, watched)
        assert bool(cases) == (watched is not None)
        found.append((ts.params, ts.states.data.qpos, metrics))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_a_model_comes_back_from_its_bytes():
    model = mujoco.MjModel.from_xml_path(str(models_dir() / "cartpole" / "cartpole.xml"))
    again = from_bytes(to_bytes(model))
    np.testing.assert_array_equal(again.body_mass, model.body_mass)
    assert to_bytes(again) == to_bytes(model)


def test_a_replay_is_plain_mujoco_and_hides_no_break():
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/>'
        '<geom size="0.1" mass="2"/></body></worldbody><actuator><motor joint="x"/></actuator></mujoco>'
    )
    ctrl = np.array([[4.0], [-2.0], [np.nan], [0.0]])
    found = replay(model, np.zeros(1), np.ones(1), np.zeros(0), ctrl, substeps=3)
    # 2 m/s^2 for 0.03 s, then -1 m/s^2
    np.testing.assert_allclose(found.qvel[:2, 0], [1.06, 1.03])
    assert found.qvel.shape == (4, 1)
    assert model.opt.disableflags == 0
    wild = replay(model, np.array([np.nan]), np.zeros(1), np.zeros(0), np.zeros((2, 1)), substeps=1)
    assert np.isnan(wild.qpos).all()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["replay=/no/such.npz"], "there is no such file"),
        (["replay={broken}"], "is not a fault of a run, or is damaged"),
        (["replay={foreign}"], "is not a fault of a run, or is damaged"),
        (["replay={cut}"], "is not a fault of a run, or is damaged"),
        (["replay=x", "run=y"], "run and replay are both given"),
        (["replay={file}", "video=/no/such/film.mp4"], "there is no folder /no/such"),
        (["replay={file}", "video=film.mp4", "camera=front"], "the model has no camera 'front'"),
    ],
)
def test_a_mistake_is_one_sentence(
    run_dir: Path, tmp_path: Path, words: list[str], part: str, capsys: pytest.CaptureFixture[str]
):
    file = run_dir / faults.FOLDER / "diverged.npz"
    places = {name: tmp_path / f"{name}.npz" for name in ("broken", "foreign", "cut")} | {"file": file}
    places["broken"].write_text("not a zip")
    np.savez(places["foreign"], qpos=np.zeros(3))
    places["cut"].write_bytes(file.read_bytes()[:2000])
    assert part in refusal(capsys, *(word.format(**places) for word in words))
