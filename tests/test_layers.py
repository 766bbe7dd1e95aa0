"""Imports point one way: tree <- env <- {envs, ppo} <- commands, and physics <- envs."""

import ast
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
