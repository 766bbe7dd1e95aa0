"""Settings as types: defaults in code, then `configs/<task>.yaml`, then what a run asks for -> one `TrainConfig`.

A setting is a field of a frozen dataclass, and nothing else. No global state: `mjxgym.make` uses this as commands do.
"""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf

from mjxgym import envs
from mjxgym.physics import render
from mjxgym.ppo.config import PPOConfig
from mjxgym.strict import UserError, change, flatten, merge, plain, read_yaml, show

# In every run folder.
CONFIG_FILE = "config.yaml"
DEFAULTS_FILE = "defaults.yaml"  # the task's settings as they were then, before what the run asked for
CHECKPOINTS = "checkpoints"
SHOWN = 3  # changed settings named in a line


@dataclasses.dataclass(frozen=True)
class WandbConfig:
    """Weights & Biases, beside the files of the run folder."""

    mode: Literal["disabled", "online", "offline"] = "disabled"
    project: str = "mjxgym"
    entity: str | None = None  # None: the user's default
    group: str | None = None  # None: the task
    name: str | None = None  # None: <task>-<run folder's name>, e.g. ant-2030-01-01_12-00-00-42
    tags: tuple[str, ...] = ()  # besides the task's and the engine's name


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """Episodes with the mean action, in the training engine and in engine c: the return, and the gap between them."""

    every: int = 100  # iterations between evaluations during training; 0: none
    at_end: bool = True  # of the best checkpoint
    episodes: int = 32


@dataclasses.dataclass(frozen=True)
class VideoConfig:
    """Films of the policy with the mean action, in engine c."""

    every: int = 0  # iterations between films during training; 0: none
    at_end: bool = True  # of the best checkpoint
    seconds: float = 10.0
    envs: int = 1  # worlds, a tile each
    width: int = 640  # pixels
    height: int = 480
    camera: str | None = None  # None: the model's `track`, else its first
    renderer: Literal["auto", "gl", "rays"] = "auto"

    def check(self, prefix: str = "") -> None:
        """Raise UserError for numbers that cannot be; `prefix` is where the settings are on the command line."""
        if not 0.0 < self.seconds <= 3600.0:
            raise UserError(f"{prefix}seconds is {self.seconds}; it must be more than 0, and 3600 at most")
        if self.envs < 1:
            raise UserError(f"{prefix}envs is {self.envs}; it must be at least 1")
        try:
            render.check_size(self.width, self.height, self.envs)
        except ValueError as error:
            raise UserError(f"{prefix}{error}") from error


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """A training run, whole. The command line has the same keys, except that `env=NAME` chooses `task`."""

    task: str  # file name in envs/ and configs/
    env: Any  # the task's own Config
    ppo: PPOConfig = dataclasses.field(default=PPOConfig())
    eval: EvalConfig = dataclasses.field(default=EvalConfig())
    video: VideoConfig = dataclasses.field(default=VideoConfig())
    wandb: WandbConfig = dataclasses.field(default=WandbConfig())
    engine: str = "auto"  # auto | warp | jax | c
    num_envs: int = 4096
    seed: int = 42
    iterations: int = 500  # PPO iterations, the unit of progress
    iterations_per_call: int = 10  # in one XLA call, between which Python logs and saves; about a second's worth
    save_seconds: float = 30.0  # between checkpoints
    run_dir: str | None = None  # None: runs/<task>/<date-time>-<seed>
    resume: str | None = None  # a run folder, or auto: the task's newest under runs/, if any

    def check(self) -> None:
        """Raise UserError for numbers that cannot work together."""
        for key, low in (("iterations", 1), ("iterations_per_call", 1), ("seed", 0)):
            if getattr(self, key) < low:
                raise UserError(f"{key} is {getattr(self, key)}; it must be at least {low}")
        for key, value in (("eval.every", self.eval.every), ("video.every", self.video.every)):
            if value < 0:
                raise UserError(f"{key} is {value}; it must be at least 0 (0 means never)")
        if self.eval.episodes < 1:
            raise UserError(f"eval.episodes is {self.eval.episodes}; it must be at least 1")
        self.video.check("video.")
        if self.seed >= 2**32:
            raise UserError(f"seed is {self.seed}; it must be below 2**32")
        if self.save_seconds < 0:
            raise UserError(f"save_seconds is {self.save_seconds}; it must be at least 0 (0 saves after every call)")
        try:
            self.ppo.check(self.num_envs)
        except ValueError as error:
            raise UserError(str(error)) from error


def configs_dir() -> Path:
    """The folder of the task settings: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def task_names() -> list[str]:
    """The tasks that can be trained: those of `mjxgym.envs` that have settings."""
    return [name for name in envs.task_names() if (configs_dir() / f"{name}.yaml").is_file()]


def task_config(name: str, cpu: bool = False) -> TrainConfig:
    """A task's settings: code, then its yaml, then, if `cpu`, that yaml's preset for a machine without accelerator."""
    base, changes, preset = _task_parts(name)
    where = f"configs/{name}.yaml"
    config = merge(base, changes, where)
    small = merge(config, preset, where, "cpu.")  # checked whether wanted or not
    return small if cpu else config


def env_config(name: str, **overrides: Any) -> Any:
    """The task's own `Config`; `weights={"effort": -0.1}` and `**{"weights.effort": -0.1}` both reach inside.

    Raises ValueError, with the nearest valid name, for a task or a key that does not exist or a value of another type.
    """
    try:
        return change(task_config(name).env, overrides, f"make({name!r})")
    except UserError as error:
        raise ValueError(str(error)) from error


def cpu_preset(config: TrainConfig) -> str | None:
    """One line that says which settings are the CPU preset's and how to have the full size; None if there are none."""
    full, small, now = (flatten(plain(c)) for c in (task_config(config.task), task_config(config.task, True), config))
    chosen = [key for key in full if small[key] != full[key] and now[key] == small[key]]
    if not chosen:
        return None
    return (
        f"No accelerator found: using the CPU preset of {config.task} "
        f"({', '.join(f'{key}={show(small[key])}' for key in chosen)}); "
        f"for the full size add {' '.join(f'{key}={show(full[key])}' for key in chosen)}"
    )


def _task_parts(name: str) -> tuple[TrainConfig, dict, dict]:
    """(defaults of the code, the yaml's changes, the yaml's `cpu:` section)."""
    if name not in task_names():
        near = difflib.get_close_matches(name, task_names(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"env={name} is not a task; {hint}the tasks are {', '.join(task_names())}")
    where = f"configs/{name}.yaml"
    changes = read_yaml(configs_dir() / f"{name}.yaml", where)
    preset = changes.pop("cpu", None) or {}
    if "task" in changes:
        raise UserError(f"{where}: task is not for this file to say; the file's name is the task's")
    return TrainConfig(task=name, env=envs.task(name).Config()), changes, preset


def save_run(config: TrainConfig, run_dir: Path) -> None:
    """Write all settings beside the run; `load_run` rebuilds the same config from them."""
    (run_dir / CONFIG_FILE).write_text(OmegaConf.to_yaml(plain(config)))
    defaults = run_dir / DEFAULTS_FILE
    if not defaults.exists():  # a resumed run keeps those it began with
        defaults.write_text(OmegaConf.to_yaml(_defaults(config.task)))


def changed_since(run_dir: str | Path, task: str) -> str | None:
    """One line that says which of the task's settings have changed since the run began; None if none have.

    A run's own settings are what is used, always; the line is for whoever remembers the new ones.
    """
    path = Path(run_dir).expanduser() / DEFAULTS_FILE
    if not path.is_file():
        return None
    then, now = flatten(read_yaml(path, str(path))), flatten(_defaults(task))
    changed = [key for key in then if key in now and then[key] != now[key]]
    if not changed:
        return None
    # A change in code reaches the preset too; once is enough.
    changed = [key for key in changed if not (key.startswith("cpu.") and "full." + key.removeprefix("cpu.") in changed)]
    shown = ", ".join(
        f"{key.removeprefix('full.')} was {show(then[key])} and is {show(now[key])}" for key in changed[:SHOWN]
    )
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return f"the settings of {task} have changed since this run ({shown}{more}); the run's own are used"


def _defaults(task: str) -> dict[str, Any]:
    return {"full": plain(task_config(task)), "cpu": plain(task_config(task, cpu=True))}


def load_run(run_dir: str | Path) -> TrainConfig:
    """The settings of a run folder."""
    path = Path(run_dir).expanduser() / CONFIG_FILE
    if not path.is_file():
        raise UserError(f"{run_dir} is not a run folder: it has no {CONFIG_FILE}")
    saved = read_yaml(path, str(path))
    task = saved.get("task")
    if task not in task_names():
        raise UserError(f"{path}: task is {task!r}, which is not a task here; the tasks are {', '.join(task_names())}")
    return merge(_task_parts(task)[0], saved, str(path))


def newest_run(task: str) -> Path | None:
    """The latest started run of the task under runs/ that has a checkpoint."""
    found = [path.parents[1] for path in Path("runs", task).glob(f"*/{CHECKPOINTS}/last")]
    return max(found, key=lambda run: (run / CONFIG_FILE).stat().st_mtime, default=None)
