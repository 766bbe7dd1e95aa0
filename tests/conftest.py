"""Strict JAX for every test, quick compiling, and a compile cache that outlives the run."""

import os
from pathlib import Path

# Tests are many small programs that run once: the compiler's effort would cost more than it saves. Before JAX starts.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
cache = Path(os.environ.get("MJXGYM_TEST_CACHE", Path.home() / ".cache" / "mjxgym-tests" / "jax"))
jax.config.update("jax_compilation_cache_dir", str(cache))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
