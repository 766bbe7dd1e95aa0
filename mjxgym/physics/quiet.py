"""Keep C MuJoCo's warnings off the terminal while a batch runs: a broken world is counted, not printed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator
from pathlib import Path

import mujoco


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No MuJoCo warning is printed, or written to MUJOCO_LOG.TXT, inside; outside, all is as before.

    MuJoCo calls `mju_user_warning(const char*)` if it is set. It has to be a C function, as worker threads call it
    without Python's lock; strlen has the right signature and does no harm. It is one variable for all threads: the
    first to come in sets it, the last to leave puts it back.
    """
    handler, harmless = _handler()
    with _inside.lock:
        if _inside.count == 0:
            _inside.before = handler.value
            handler.value = harmless
        _inside.count += 1
    try:
        yield
    finally:
        with _inside.lock:
            _inside.count -= 1
            if _inside.count == 0:
                handler.value = _inside.before


class _Inside:
    """How many are inside, and what was set before the first."""

    def __init__(self) -> None:
        self.lock, self.count = threading.Lock(), 0
        self.before: int | None = None


_inside = _Inside()


@functools.cache
def _handler() -> tuple[ctypes.c_void_p, int | None]:
    """The variable `mju_user_warning` of MuJoCo's library, and the address of strlen."""
    library = next(Path(mujoco.__file__).parent.glob("libmujoco.*"))
    variable = ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mju_user_warning")
    return variable, ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
