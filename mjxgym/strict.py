"""Mappings into typed records, nothing passed over: yaml files and `key=value` words -> dataclasses, NamedTuples.

A key that is no field, or a value of another type, is a UserError with the nearest name. Knows no task.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import jax
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

T = TypeVar("T")


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
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print("error: the device has too little memory for so many worlds; use a smaller num_envs", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


@contextmanager
def building() -> Iterator[None]:
    """What `envs` and `physics` raise while an env is built, a sentence for the user already, becomes a UserError."""
    try:
        yield
    except (ValueError, KeyError, FileNotFoundError, RuntimeError) as error:
        raise UserError(str(error.args[0] if len(error.args) == 1 else error)) from error


def settings(defaults: T, argv: Sequence[str]) -> T:
    """`defaults` with what the `key=value` words say: the command line of commands that need no Hydra."""
    for word in argv:
        if not word.partition("=")[0] or "=" not in word:
            raise UserError(f"command line: {word!r} is not a setting of the form key=value")
    try:
        words: Any = OmegaConf.to_container(OmegaConf.from_dotlist(list(argv)), resolve=True)
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"command line: {' '.join(str(error).split())}") from error
    known = get_type_hints(type(defaults))
    for key in map(str, words):
        if key not in known:
            hint = nearest(key, known) or f"; the settings are {', '.join(known)}"
            raise UserError(f"command line: {key} is not a setting{hint}")
    return merge(defaults, words, "command line")


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


def change(base: T, values: Mapping[str, Any], where: str) -> T:
    """`base` with the fields at these dotted keys changed, one after another."""
    for key, value in values.items():
        for name in reversed(key.split(".")):
            value = {name: value}
        base = merge(base, value, where)
    return base


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
