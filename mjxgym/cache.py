"""Compiled code kept between processes, in the user's cache folder. For commands; importing mjxgym changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import jax


def folder() -> Path:
    """MJXGYM_CACHE, or mjxgym/ in the user's cache folder."""
    named = os.environ.get("MJXGYM_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mjxgym"


def enable() -> Path | None:
    """Keep what JAX and Warp compile; the folder, or None where it cannot be written. Call before Warp is imported."""
    path = folder()
    try:
        for part in ("jax", "warp"):
            (path / part).mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(path / "jax", os.W_OK):
        return None
    os.environ.setdefault("WARP_CACHE_PATH", str(path / "warp"))
    jax.config.update("jax_compilation_cache_dir", str(path / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path
