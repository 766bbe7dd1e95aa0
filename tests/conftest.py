"""Strict JAX for every test, quick compiling, and compile caches that outlive the run."""

import os
from pathlib import Path

# Tests are many small programs that run once: the compiler's effort would cost more than it saves. Before JAX starts.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
# The commands under test keep their compiled code here too.
cache = Path(os.environ.get("MJXGYM_TEST_CACHE", Path.home() / ".cache" / "mjxgym-tests"))
os.environ["MJXGYM_CACHE"] = str(cache)
os.environ["WARP_CACHE_PATH"] = str(cache / "warp")

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(cache / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
