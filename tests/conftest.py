"""Strict JAX for every test, quick compiling, and compile caches that outlive the run."""

import importlib.util
import os
from importlib import metadata
from pathlib import Path

# Tests are many small programs that run once: the compiler's effort would cost more than it saves. Before JAX starts.
flags = [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0"]
if metadata.version("jaxlib").startswith("0.10."):  # later ones do not know this flag, and stop
    flags.append("--xla_cpu_use_fusion_emitters=false")  # a third of the compile time
os.environ["XLA_FLAGS"] = " ".join(flags)
# The commands under test keep their compiled code here too.
cache = Path(os.environ.get("MJXGYM_TEST_CACHE", Path.home() / ".cache" / "mjxgym-tests"))
os.environ["MJXGYM_CACHE"] = str(cache)
os.environ["WARP_CACHE_PATH"] = str(cache / "warp")

import jax  # noqa: E402

if importlib.util.find_spec("warp"):
    import warp

    warp.config.optimization_level = 0
import pytest  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(cache / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def pytest_collection_modifyitems(items):
    """Tests marked `gpu` skip where there is none."""
    if jax.default_backend() != "gpu":
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
