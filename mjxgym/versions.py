"""The versions that fit together, checked when mjxgym is imported: a mismatch fails later, and less clearly."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

# `physics` reads private parts of MJX and of the Warp kernels inside it, so these are exact.
EXACT = {"mujoco": "3.17.0", "mujoco-mjx": "3.17.0"}
EXACT_IF_PRESENT = {"warp-lang": "1.18.0"}


def check(version_of: Callable[[str], str] = metadata.version) -> None:
    """ImportError, with the command that mends it, if an installed version is not the one mjxgym was tested with."""
    found: dict[str, str | None] = {}
    for name in EXACT | EXACT_IF_PRESENT:
        try:
            found[name] = version_of(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    wrong = [f"{name} {found[name] or 'missing'}" for name, wanted in EXACT.items() if found[name] != wanted]
    wrong += [f"{name} {found[name]}" for name, wanted in EXACT_IF_PRESENT.items() if found[name] not in (None, wanted)]
    if wrong:
        pins = " ".join(f"{name}=={wanted}" for name, wanted in (EXACT | EXACT_IF_PRESENT).items())
        # Uninstalling first matters: MuJoCo 3 and 4 leave parts of each other behind when one replaces the other.
        raise ImportError(
            f"mjxgym needs other versions than those installed ({', '.join(wrong)}). "
            f"Run: pip uninstall -y {' '.join(EXACT)} && pip install {pins}"
        )
