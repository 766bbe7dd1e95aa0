"""Imports point one way: tree <- env <- {envs, ppo} <- commands, and physics <- envs; and all of them are declared."""

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import mjxgym

PACKAGE = Path(mjxgym.__file__).parent
ALLOWED = {
    "tree": set(),
    "env": {"tree"},
    "physics": {"tree", "physics"},
    "envs": {"tree", "env", "physics", "envs"},
    "ppo": {"tree", "env", "ppo"},
    "strict": set(),
    "config": {"strict", "physics", "envs", "ppo"},
    "build": {"strict", "config", "checkpoint", "env", "physics", "envs", "ppo"},
    "command_line": {"strict", "config"},
    "checkpoint": {"strict"},
    "terms": set(),
    "log": {"strict", "config", "machine"},
    "plot": {"strict", "config", "command_line", "log", "terms"},
    "onnx_graph": {"strict"},
    "actor": {"build", "checkpoint", "ppo"},
    "gymnasium": {"env"},
}


def imported(path: Path) -> set[str]:
    """First parts below `mjxgym` of what a file imports from the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "mjxgym":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mjxgym."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("mjxgym.")}
    return found


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_only_what_lies_below_it(part):
    files = list((PACKAGE / part).glob("*.py")) if (PACKAGE / part).is_dir() else [PACKAGE / f"{part}.py"]
    assert files
    for path in files:
        assert imported(path) <= ALLOWED[part], path.name


@pytest.mark.parametrize("part", ["envs", "ppo"])
def test_only_physics_touches_mujoco(part):
    for path in (PACKAGE / part).glob("*.py"):
        assert "mujoco" not in {name.split(".")[0] for name in modules(path)}, path.name


def modules(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_every_package_imported_is_declared():
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"]]
    for extra in ("warp", "export", "gymnasium"):
        lines += project["optional-dependencies"][extra]
    declared = {canonical(re.split(r"[ \[<>=]", line)[0]) for line in lines}
    known = metadata.packages_distributions()
    found = {name.split(".")[0] for path in PACKAGE.rglob("*.py") for name in modules(path)}
    for name in found - set(sys.stdlib_module_names) - {"", "mjxgym"}:
        assert {canonical(one) for one in known[name]} & declared, name


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")
