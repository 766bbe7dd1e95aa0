"""A Hydra command line -> one `TrainConfig`: its grammar, sweeps, the choice `env=NAME`, and what `resume` may change.

The keys are checked against the config's fields before Hydra sees them, so that a mistake is one sentence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mjxgym.config import TrainConfig, load_run, newest_run, task_config, task_names
from mjxgym.strict import UserError, change, flatten, merge, nearest, plain, show

# Keys that a resumed run may change: how long and how it reports, never what it computes.
RESUMABLE = ("iterations", "iterations_per_call", "save_seconds", "eval", "video", "wandb")


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
        newest = newest_run(_task(words))
        if newest is None:
            return dataclasses.replace(_compose(argv, words), resume=None)
        resume = str(newest)
    if resume is None:
        return _compose(argv, words)
    saved = load_run(resume)
    if given.get("env", saved.task) != saved.task:
        raise UserError(f"command line: env={given['env']}, but the run in {resume} is of {saved.task}; leave env out")
    argv = [*(word.text for word in words if word.key != "env"), f"env={saved.task}"]
    words = parse(argv)  # now that the task is known, with its keys
    asked = _compose(argv, words)
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
    if not any(word.key == "resume" for word in words):
        _task(words)
    for task in tasks_of(words):
        _check_keys([word for word in words if not word.key.startswith("hydra")], task)
    return words


def tasks_of(words: Sequence[Word]) -> list[str]:
    """The tasks that the command line names; none where it only resumes."""
    return [str(task) for word in words if word.key == "env" for task in word.values]


def _task(words: Sequence[Word]) -> str:
    tasks = tasks_of(words)
    if not tasks:
        raise UserError(f"env is missing: say env=NAME, one of {', '.join(task_names())}")
    return tasks[-1]


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

    base = task_config(_task(words), jax.default_backend() == "cpu")
    before = Singleton.get_state()  # inside a sweep, Hydra is already at work
    try:
        GlobalHydra.instance().clear()
        register(tasks_of(words))
        with initialize(version_base="1.3", config_path=None):
            composed = compose("train", list(argv))
        tree = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"command line: {' '.join(str(error).split())}") from error
    finally:
        Singleton.set_state(before)
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
            # Run folders are ours; of a sweep, Hydra keeps its own record beside them.
            "hydra": {
                "output_subdir": None,
                "run": {"dir": "."},
                "sweep": {"dir": "runs/sweeps/${now:%Y-%m-%d_%H-%M-%S}"},
                "job": {"chdir": False},
            },
        },
    )


def _continued(saved: TrainConfig, asked: TrainConfig, words: Sequence[Word]) -> TrainConfig:
    """The saved config with what a resumed run may change; a word that contradicts the rest is refused."""
    old, new = flatten(plain(saved)), flatten(plain(asked))
    changes: dict[str, Any] = {}
    for word in words:
        if word.key in ("env", "resume"):  # the task's name and the run's, which agree already
            continue
        keys = [key for key in new if key == word.key or key.startswith(f"{word.key}.")]
        if word.key.partition(".")[0] in RESUMABLE:
            changes |= {key: new[key] for key in keys}
            continue
        for key in keys:
            if new[key] != old[key]:
                raise UserError(
                    f"command line: {word.text}, but the run being resumed has {key}={show(old[key])}; leave it out, "
                    "or start a new run"
                )
    return change(saved, changes, "command line")
