"""Versions that do not fit together are refused at import, with the command that mends it."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from mjxgym import versions


def installed(**changes):
    found = {name.replace("-", "_"): wanted for name, wanted in (versions.EXACT | versions.EXACT_IF_PRESENT).items()}
    found |= changes

    def version_of(name):
        version = found[name.replace("-", "_")]
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    return version_of


def test_the_versions_here_fit():
    versions.check()


def test_warp_may_be_absent():
    versions.check(installed(warp_lang=None))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mujoco": "4.0.0"}, r"mujoco 4\.0\.0"),
        ({"mujoco_mjx": "3.16.0"}, r"mujoco-mjx 3\.16\.0"),
        ({"mujoco_mjx": None}, "mujoco-mjx missing"),
        ({"warp_lang": "1.19.0"}, r"warp-lang 1\.19\.0"),
    ],
)
def test_a_wrong_version_is_named_with_the_cure(changes, named):
    with pytest.raises(ImportError, match=f"{named}.*Run: pip uninstall.*pip install mujoco==3.17.0"):
        versions.check(installed(**changes))


def test_pins_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["warp"]]
    for name, wanted in (versions.EXACT | versions.EXACT_IF_PRESENT).items():
        assert any(line.replace(" ", "").startswith(f"{name}=={wanted}") for line in required), name
