"""Strict JAX for every test, and a compile cache that outlives the run."""

import os
from pathlib import Path

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
cache = Path(os.environ.get("MJXGYM_TEST_CACHE", Path.home() / ".cache" / "mjxgym-tests" / "jax"))
jax.config.update("jax_compilation_cache_dir", str(cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
