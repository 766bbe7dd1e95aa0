"""Text to types: defaults in code, `configs/<task>.yaml`, a Hydra command line -> one frozen `TrainConfig`.

A setting is a field of a dataclass, and nothing else: a key that is no field, or a value of another type, stops the
run with the nearest name. `env_config` serves library use and touches no global state; `load` is for the commands.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import jax
import yaml  # type: ignore[import-untyped]
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mjxgym import envs
from mjxgym.ppo.config import PPOConfig

T = TypeVar("T")

# Keys that a resumed run may change: how long and how it reports, never what it computes.
RESUMABLE = ("env", "resume", "iterations", "iterations_per_call", "save_seconds", "wandb")
CONFIG_FILE = "config.yaml"
CHECKPOINTS = "checkpoints"


class UserError(Exception):
    """What was asked for cannot be done; the message is the sentence that says why and what would do."""


def exit_code(run: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """A command's exit code: what `run` says, 2 with a sentence on stderr for a UserError, 130 for Ctrl-C.

    MJXGYM_TRACEBACK=1 shows where the error came from.
    """
    try:
        return run(argv)
    except UserError as error:
        if os.environ.get("MJXGYM_TRACEBACK"):
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


@dataclasses.dataclass(frozen=True)
class WandbConfig:
    """Weights & Biases, beside the files of the run folder."""

    mode: Literal["disabled", "online", "offline"] = "disabled"
    project: str = "mjxgym"
    entity: str | None = None  # None: the user's default
    group: str | None = None  # None: the task
    name: str | None = None  # None: the run folder's
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """A training run, whole. The command line has the same keys, except that `env=NAME` chooses `task`."""

    task: str  # file name in envs/ and configs/
    env: Any  # the task's own Config
    ppo: PPOConfig = dataclasses.field(default=PPOConfig())
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
        if self.seed >= 2**32:
            raise UserError(f"seed is {self.seed}; it must be below 2**32")
        if self.save_seconds < 0:
            raise UserError(f"save_seconds is {self.save_seconds}; it must be at least 0 (0 saves after every call)")
        try:
            self.ppo.check(self.num_envs)
        except ValueError as error:
            raise UserError(str(error)) from error


# Tasks


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
        return merge(task_config(name).env, _nested(overrides), f"make({name!r})")
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


# A mapping into a record


def merge(base: T, changes: Any, where: str, prefix: str = "") -> T:
    """`base`, a dataclass or NamedTuple, with some fields changed; nested mappings reach into nested records."""
    if not isinstance(changes, Mapping):
        raise UserError(f"{where}: {prefix.rstrip('.') or 'the whole'} is {changes!r}; it must be a list of key: value")
    kinds = get_type_hints(type(base))
    values = {}
    for name, value in changes.items():
        if name not in kinds:
            raise UserError(f"{where}: {prefix}{name} is not a field of {_label(base)}{nearest(str(name), kinds)}")
        values[name] = _convert(kinds[name], getattr(base, name), value, where, prefix + name)
    return base._replace(**values) if isinstance(base, tuple) else dataclasses.replace(base, **values)  # type: ignore


def plain(record: Any) -> Any:
    """Dataclasses and NamedTuples as dicts, tuples as lists: what yaml can hold. `merge` is the way back."""
    if dataclasses.is_dataclass(record):
        return {field.name: plain(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if hasattr(record, "_asdict"):
        return {name: plain(value) for name, value in record._asdict().items()}
    return [plain(value) for value in record] if isinstance(record, tuple) else record


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def nearest(name: str, known: Any, cutoff: float = 0.6) -> str:
    """`; did you mean ...?`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def show(value: Any) -> str:
    """As one would type it on the command line."""
    if isinstance(value, list):
        return "[" + ",".join(map(show, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _convert(kind: Any, base: Any, value: Any, where: str, key: str) -> Any:
    """`value` as a field's type `kind`; `base` is what the field holds now."""

    def wrong(wanted: str) -> UserError:
        return UserError(f"{where}: {key} is {value!r}; it must be {wanted}")

    if dataclasses.is_dataclass(base) or hasattr(base, "_asdict"):
        return value if isinstance(value, type(base)) else merge(base, value, where, f"{key}.")
    if get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind):
        inner = [part for part in get_args(kind) if part is not type(None)]
        return None if value is None else _convert(inner[0], base, value, where, key)
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise wrong("a list, e.g. [1,2]")
        if parts[-1] is Ellipsis:
            parts = (parts[0],) * len(value)
        if len(parts) != len(value):
            raise wrong(f"a list of {len(parts)}")
        return tuple(_convert(part, None, one, where, key) for part, one in zip(parts, value, strict=True))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise wrong(f"one of {', '.join(get_args(kind))}")
        return value
    if kind is str:
        if not isinstance(value, str) or value in ("", "???"):
            raise wrong("text")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise wrong("true or false")
        return value
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong("a whole number")
        return value
    # float, and the terms of a reward, whose type says Array but whose weights are numbers
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong("a number")
    return float(value)


def _label(record: Any) -> str:
    """`ant.Config`, `PPOConfig`: as a person would look for it."""
    kind = type(record)
    return f"{kind.__module__.rpartition('.')[2]}.Config" if kind.__name__ == "Config" else kind.__name__


def _nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in dotted.items():
        head, dot, tail = key.partition(".")
        if dot:
            tree[head] = {**tree.get(head, {}), **_nested({tail: value})}
        else:
            tree[head] = {**tree.get(head, {}), **value} if isinstance(value, Mapping) else value
    return tree


# Files


def read_yaml(path: Path, where: str) -> dict:
    """A yaml file's mapping; `where` names it in errors."""
    try:
        text = OmegaConf.to_container(OmegaConf.load(path))
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise UserError(f"{where} is not valid yaml: {' '.join(str(error).split())}") from error
    if not isinstance(text, dict):
        raise UserError(f"{where} must be a list of key: value")
    return text


def save_run(config: TrainConfig, run_dir: Path) -> None:
    """Write all settings beside the run; `load_run` rebuilds the same config from them."""
    (run_dir / CONFIG_FILE).write_text(OmegaConf.to_yaml(plain(config)))


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


# The command line


class Word(NamedTuple):
    """One `key=value` of the command line."""

    text: str
    key: str
    values: tuple[Any, ...]  # more than one: a sweep


def load(argv: Sequence[str]) -> TrainConfig:
    """The run that a command line asks for. `resume` comes back as the folder to go on in, or None."""
    words = parse(argv)
    for word in words:
        if len(word.values) > 1:
            raise UserError(f"command line: {word.text} is a sweep; add -m to run one value after the other")
    given = {word.key: word.values[0] for word in words}
    resume = given.get("resume")
    if resume == "auto":
        newest = newest_run(tasks_of(words)[0])
        if newest is None:
            return dataclasses.replace(_compose(argv, words), resume=None)
        resume = str(newest)
    if resume is None:
        return _compose(argv, words)
    saved = load_run(resume)
    if given.get("env", saved.task) != saved.task:
        raise UserError(f"command line: env={given['env']}, but the run in {resume} is of {saved.task}; leave env out")
    words = [word for word in words if word.key != "env"] + parse([f"env={saved.task}"])
    asked = _compose([word.text for word in words], words)
    return dataclasses.replace(_continued(saved, asked, words), run_dir=resume, resume=resume)


def parse(argv: Sequence[str]) -> list[Word]:
    """Hydra's override grammar; every key is checked against the fields of the config, for each task named."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, words = OverridesParser.create(), []
    for text in argv:
        try:
            parsed = parser.parse_override(text)
        except HydraException as error:
            raise UserError(f"command line: {text!r} is not a setting of the form key=value") from error
        if parsed.is_delete() or parsed.is_add() or parsed.is_force_add():
            raise UserError(f"command line: {text!r} adds or removes a key; settings can only be changed, key=value")
        values = tuple(parsed.sweep_string_iterator()) if parsed.is_sweep_override() else (parsed.value(),)
        words.append(Word(text, parsed.key_or_group, values))
    if not any(word.key in ("env", "resume") for word in words):
        raise UserError(f"env is missing: say env=NAME, one of {', '.join(task_names())}")
    for task in tasks_of(words):
        _check_keys([word for word in words if not word.key.startswith("hydra")], task)
    return words


def tasks_of(words: Sequence[Word]) -> list[str]:
    """The tasks that the command line names; none where it only resumes."""
    return [str(task) for word in words if word.key == "env" for task in word.values]


def _check_keys(words: Sequence[Word], task: str) -> None:
    config = plain(task_config(task))
    config.pop("task")
    known = flatten(config)
    groups = {key.rpartition(".")[0] for key in known} | {"env"}
    said = flatten({word.key: word.values[0] for word in words})  # key={inner: value} reaches inside too
    for key in said:
        if key in known or key in groups:
            continue
        group, _, tail = key.rpartition(".")
        same = [one for one in known if one.rpartition(".")[2] == tail]
        siblings = [one for one in known if one.rpartition(".")[0] == group]
        hint = nearest(key, same or siblings, 0.3 if same else 0.6) or nearest(key, known)
        raise UserError(f"command line: {key} is not a setting of env={task}{hint}")


def _compose(argv: Sequence[str], words: Sequence[Word]) -> TrainConfig:
    """Let Hydra lay the overrides over the task's settings, then turn what it made into types."""
    from hydra import compose, initialize
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.singleton import Singleton
    from hydra.errors import HydraException

    tasks = tasks_of(words)
    if not tasks:
        raise UserError(f"env is missing: say env=NAME, one of {', '.join(task_names())}")
    before = Singleton.get_state()  # inside a sweep, Hydra is already at work
    try:
        GlobalHydra.instance().clear()
        register(tasks)
        with initialize(version_base="1.3", config_path=None):
            composed = compose("train", list(argv))
        tree = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"command line: {' '.join(str(error).split())}") from error
    finally:
        Singleton.set_state(before)
    base = task_config(tasks[-1], jax.default_backend() == "cpu")
    config = merge(base, tree, "command line")
    config.check()
    return config


def register(tasks: Sequence[str]) -> None:
    """Give Hydra the settings of these tasks, one choice of the group `env` each, as this machine wants them."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for task in tasks:
        tree = plain(task_config(task, jax.default_backend() == "cpu"))
        tree.pop("task")
        store.store(group="env", name=task, package="_global_", node=tree)
    store.store(
        name="train",
        node={
            "defaults": ["_self_", {"env": "???"}, {"override hydra/job_logging": "none"}],
            # The run folder is ours; Hydra writes none.
            "hydra": {"output_subdir": None, "run": {"dir": "."}, "job": {"chdir": False}},
        },
    )


def _continued(saved: TrainConfig, asked: TrainConfig, words: Sequence[Word]) -> TrainConfig:
    """The saved config with what a resumed run may change; a word that contradicts the rest is refused."""
    old, new = flatten(plain(saved)), flatten(plain(asked))
    changes: dict[str, Any] = {}
    for word in words:
        keys = [key for key in new if key == word.key or key.startswith(f"{word.key}.")]
        if word.key.partition(".")[0] in RESUMABLE:
            changes |= {key: new[key] for key in keys if word.key not in ("env", "resume")}
            continue
        for key in keys:
            if new[key] != old[key]:
                raise UserError(
                    f"command line: {word.text}, but the run being resumed has {key}={show(old[key])}; leave it out, "
                    "or start a new run"
                )
    return merge(saved, _nested(changes), "command line")
