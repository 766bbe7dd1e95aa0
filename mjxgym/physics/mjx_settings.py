"""How MJX's JAX code must be traced, whatever the caller's own JAX settings are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def mjx_settings() -> Iterator[None]:
    """Full float32 products (TF32 ruins constraint solving) and NumPy's broadcasting rules, which MJX relies on."""
    with jax.default_matmul_precision("highest"), jax.numpy_rank_promotion("allow"):
        yield
