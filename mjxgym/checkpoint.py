"""Save and restore any pytree whole: a folder with an orbax checkpoint and a page that says what is in it.

A folder appears complete or not at all, and the one it replaces goes only then. Restoring is onto a target of known
shapes (`jax.eval_shape`), which may ask for a part of what was saved: leaves are found by their path in the tree.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from mjxgym.strict import UserError

T = TypeVar("T")

ABOUT = "about.json"
ARRAYS = "arrays"
# What the page holds: whose state it is, whatever `save` was told, and shape, type and checksum of each leaf.
PAGE = {"task": str, "note": dict, "leaves": dict}
# How many mismatching leaves an error shows: one screen.
SHOWN = 12


def fetch(state: T) -> T:
    """The state in this machine's memory, as numpy arrays; keys stay typed. Safe after the state is donated."""
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if is_key(leaf) else np.array(leaf), state)


def save(path: Path, state: Any, task: str, note: dict[str, Any]) -> None:
    """Put `state`, and a `note` that json can hold, into the folder `path`. OSError leaves what was there intact."""
    fresh, old = path.with_name(path.name + ".new"), path.with_name(path.name + ".old")
    shutil.rmtree(fresh, ignore_errors=True)
    arrays = {name: raw(leaf) for name, leaf in leaves(state)}
    about = {
        "task": task,
        "note": note,
        "leaves": {
            name: {**describe(leaf), **implementation(leaf), "crc32": checksum(arrays[name])}
            for name, leaf in leaves(state)
        },
    }
    try:
        fresh.mkdir(parents=True)
        (fresh / ABOUT).write_text(json.dumps(about, indent=1))
        # What has no elements is not written; the target's shape says all there is to know.
        _orbax().save((fresh / ARRAYS).absolute(), {name: array for name, array in arrays.items() if array.size})
    except Exception as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if isinstance(error, OSError):
            raise
        if "RESOURCE_EXHAUSTED" in str(error) or "No space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise OSError(errno.EIO, " ".join(str(error).split())[:300], str(path)) from error
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    fresh.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def restore(path: Path, target: T, task: str) -> tuple[T, dict[str, Any]]:
    """(a state with the leaves of `target`, the note). UserError if it is damaged, or of another task or network."""
    about = read_about(path)
    found = about["leaves"]
    wanted = {name: describe(leaf) for name, leaf in leaves(target)}
    if about["task"] != task:
        raise UserError(f"{path} is a checkpoint of env={about['task']}, not of env={task}")
    wrong = [name for name in wanted if not same(wanted[name], found.get(name))]
    if wrong:
        lines = [f"  {name}: expected {brief(wanted[name])}, found {brief(found.get(name))}" for name in wrong[:SHOWN]]
        more = [f"  ... and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        raise UserError("\n".join([f"{path} (env={task}) does not fit this env and network:", *lines, *more]))
    try:
        arrays = _orbax().restore((path / ARRAYS).absolute())
    except Exception as error:
        raise damaged(path, error) from error
    for name, leaf in wanted.items():
        array = arrays.get(name)
        if array is None and math.prod(leaf["shape"]):
            raise damaged(path, f"{name} is missing")
        if array is not None and checksum(np.asarray(array)) != found[name]["crc32"]:
            raise damaged(path, f"the checksum of {name} is wrong")

    def load(name: str, leaf: Any) -> Any:
        if is_key(leaf):
            return jax.random.wrap_key_data(jnp.asarray(arrays[name]), impl=found[name]["impl"])
        return jnp.asarray(arrays[name]) if name in arrays else jnp.zeros(leaf.shape, leaf.dtype)

    names = [name for name, _ in leaves(target)]
    flat, tree = jax.tree.flatten(target)
    return jax.tree.unflatten(tree, [load(name, leaf) for name, leaf in zip(names, flat, strict=True)]), about["note"]


def read_about(path: Path) -> dict[str, Any]:
    """The page beside the arrays. If the machine died between the two renames of `save`, finishes the second."""
    old = path.with_name(path.name + ".old")
    if not path.exists() and old.exists():
        old.rename(path)
    if not path.is_dir():
        raise UserError(f"there is no checkpoint at {path}")
    try:
        about = json.loads((path / ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    if not (isinstance(about, dict) and all(isinstance(about.get(part), kind) for part, kind in PAGE.items())):
        raise damaged(path, f"{ABOUT} lacks {', '.join(PAGE)}")
    return about


def damaged(path: Path, reason: object) -> UserError:
    """The one sentence for whatever is wrong with the files."""
    text = " ".join(str(reason).split())[:200]
    return UserError(f"the checkpoint {path} is damaged or incomplete ({text}); use another one, or start a new run")


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """(path such as `params.params.trunk_0.kernel`, leaf), in tree order."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield jax.tree_util.keystr(path, simple=True, separator="."), leaf


def describe(leaf: Any) -> dict[str, Any]:
    """What must agree for a leaf to be restored; the dtype of a key differs between implementations."""
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def implementation(leaf: Any) -> dict[str, str]:
    """What makes a key of words again."""
    return {"impl": str(jax.random.key_impl(leaf))} if is_key(leaf) else {}


def same(wanted: dict[str, Any], found: dict[str, Any] | None) -> bool:
    """The descriptions agree."""
    return found is not None and all(found.get(part) == wanted[part] for part in wanted)


def brief(leaf: dict[str, Any] | None) -> str:
    """`float32[4096,60]`, or `nothing`."""
    return "nothing" if leaf is None else f"{leaf['dtype']}[{','.join(map(str, leaf['shape']))}]"


def is_key(leaf: Any) -> bool:
    """A typed PRNG key, or its shape."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def raw(leaf: Any) -> np.ndarray:
    """A leaf as numpy; of a key, its words."""
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def checksum(array: np.ndarray) -> int:
    """CRC-32 of the bytes."""
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _orbax() -> Any:
    """Orbax, silent; imported on first use, since that takes seconds."""
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)
    return ocp.PyTreeCheckpointer()
