"""MuJoCo's warnings are silent inside `quiet`, and only there."""

from __future__ import annotations

import threading
from pathlib import Path

import mujoco
import numpy as np
import pytest

from mjxgym.physics.quiet import quiet

LOG = Path("MUJOCO_LOG.TXT")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes its log


def break_a_world() -> None:
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    data.qpos[0] = np.nan
    mujoco.mj_step(model, data)


def test_warnings_are_silent_inside_only():
    with quiet():
        break_a_world()
    assert not LOG.exists()
    break_a_world()
    assert "Nan, Inf or huge value in QPOS" in LOG.read_text()


def test_two_threads_that_overlap_leave_all_as_it_was():
    """The first to come in is the first to leave."""
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with quiet():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with quiet():
        leave.set()
        thread.join()
        break_a_world()
        assert not LOG.exists()
    break_a_world()
    assert LOG.exists()
