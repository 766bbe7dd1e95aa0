"""A broken world's last steps as a file: written by a training, read by `play replay=FILE`. Axes: T control steps."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np

from mjxgym import machine
from mjxgym.build import Built
from mjxgym.config import TrainConfig
from mjxgym.envs.faults import Snapshot
from mjxgym.physics import limits
from mjxgym.physics.replay import States, from_bytes, replay, to_bytes
from mjxgym.ppo.faultbox import Case
from mjxgym.strict import UserError

FOLDER = "faults"  # in the run folder: <cause>.npz, one for each cause of `nonfinite/<cause>`


class Fault(NamedTuple):
    """What the file holds."""

    steps: Snapshot  # [T, ...], the last one broke
    about: dict[str, Any]  # task, engine, cause, iteration, world, substeps, control_dt, versions
    model: mujoco.MjModel


def write(folder: Path, cause: str, case: Case, built: Built, settings: TrainConfig) -> Path:
    """The file of a case, fetched; what of the case belongs to an earlier episode is left out."""
    env = built.env
    steps = since_reset(Snapshot(*(part[len(part) - int(case.length) :] for part in case.steps)))
    about = {
        "task": settings.task,
        "engine": settings.engine,
        "cause": cause,
        "iteration": int(case.iteration) + 1,  # as in metrics.csv: the first is 1
        "world": int(case.world),
        "substeps": int(env.config.substeps),
        "control_dt": float(env.control_dt),
        "versions": machine.record(settings.engine)["versions"],
    }
    path = folder / FOLDER / f"{cause}.npz"
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f".{os.getpid()}-{path.name}")
    model = np.frombuffer(to_bytes(env.physics.names.model), np.uint8)
    try:
        np.savez_compressed(draft, about=json.dumps(about), model=model, **steps._asdict())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def since_reset(steps: Snapshot) -> Snapshot:
    """The tail of the steps [T, ...] in which the episode's clock runs on."""
    jumps = np.flatnonzero(np.diff(steps.step_count) != 1)
    start = int(jumps[-1]) + 1 if len(jumps) else 0
    return Snapshot(*(part[start:] for part in steps))


def read(path: Path) -> Fault:
    """UserError if it is not such a file."""
    try:
        with np.load(path) as file:
            about = json.loads(str(file["about"]))
            steps = Snapshot(*(file[name] for name in Snapshot._fields))
            return Fault(steps, about, from_bytes(file["model"].tobytes()))
    except FileNotFoundError as error:
        raise UserError(f"replay={path}: there is no such file; a run keeps them in RUN/{FOLDER}/") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, mujoco.FatalError) as error:
        raise UserError(f"replay={path} is not a fault of a run, or is damaged ({error})") from error


def again(fault: Fault) -> States:
    """The same controls from the same start in C MuJoCo."""
    steps = fault.steps
    qpos, qvel, act, ctrl = map(np.asarray, (steps.qpos, steps.qvel, steps.act, steps.ctrl))
    return replay(fault.model, qpos[0], qvel[0], act[0], ctrl, fault.about["substeps"])


def report(fault: Fault, states: States) -> list[str]:
    """Step by step, how fast and how far apart; and who is to blame."""
    about, steps, model = fault.about, fault.steps, fault.model
    lines = [
        f"{about['task']} on engine {about['engine']}: world {about['world']} broke in iteration {about['iteration']} "
        f"({about['cause']}), in control step {int(steps.step_count[-1]) + 1} of its episode",
        "control step   largest |qvel|, m/s or rad/s                 largest difference",
        f"               engine {about['engine']:<6}    C MuJoCo    bound    of qpos, m or rad",
    ]
    bounds = limits.of_model(model)
    for index, count in enumerate(steps.step_count):
        speed, truth = steps.next_qvel[index], states.qvel[index]
        fastest = int(np.argmax(np.where(np.isfinite(speed), np.abs(speed) / bounds.qvel, np.inf)))
        apart = float(np.max(np.abs(steps.next_qpos[index] - states.qpos[index])))
        lines.append(
            f"{int(count) + 1:>12}   {worst(speed):>13.4g} {worst(truth):>11.4g} {bounds.qvel[fastest]:>8.4g}"
            f"    {apart:>17.3g}"
        )
    lines.append(verdict(fault, states))
    return lines


def worst(values: Any) -> float:
    """The largest magnitude, NaN if one is."""
    return float(np.max(np.abs(values))) if len(values) else 0.0


def verdict(fault: Fault, states: States) -> str:
    """What C MuJoCo says of it."""
    about = fault.about
    if about["cause"] == "output":
        return "the physics is sound: an observation or the reward was not finite; look at the task's code"
    if not sound(fault.model, states):
        return "C MuJoCo breaks too: the model cannot bear these controls; see python -m mjxgym.stability"
    return f"C MuJoCo does not break: engine {about['engine']}, its precision or its settings are the place to look"


def sound(model: mujoco.MjModel, states: States) -> bool:
    """Every state is finite and within what the model can do."""
    bounds = limits.of_model(model)
    finite = np.isfinite(states.qpos).all() and np.isfinite(states.qvel).all()
    fast = np.abs(states.qvel) > bounds.qvel
    out = (states.qpos < bounds.qpos_lower) | (states.qpos > bounds.qpos_upper)
    return bool(finite and not fast.any() and not out.any())
