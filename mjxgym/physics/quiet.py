"""Keep C MuJoCo's warnings off the terminal while a batch runs: a broken world is counted, not printed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path

import mujoco


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No MuJoCo warning is printed, or written to MUJOCO_LOG.TXT, inside; outside, all is as before.

    MuJoCo calls `mju_user_warning(const char*)` if it is set. It has to be a C function, as worker threads call it
    without Python's lock; strlen has the right signature and does no harm.
    """
    handler, harmless = _handler()
    before = handler.value
    handler.value = harmless
    try:
        yield
    finally:
        handler.value = before


@functools.cache
def _handler() -> tuple[ctypes.c_void_p, int | None]:
    """The variable `mju_user_warning` of MuJoCo's library, and the address of strlen."""
    library = next(Path(mujoco.__file__).parent.glob("libmujoco.*"))
    variable = ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mju_user_warning")
    return variable, ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
