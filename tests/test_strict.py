"""Mappings into records: what is accepted, what is refused, and with which sentence."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple, Optional

import pytest

from mjxgym import strict
from mjxgym.strict import UserError, change, flatten, merge, plain


class Weights(NamedTuple):
    run: float = 1.0
    fall: float = -2.0


@dataclasses.dataclass(frozen=True)
class Part:
    size: tuple[float, float] = (0.0, 1.0)
    layers: tuple[int, ...] = (4,)
    limit: Optional[float] = None  # noqa: UP045
    on: bool = True
    count: int = 3
    weights: Weights = dataclasses.field(default=Weights())


@dataclasses.dataclass(frozen=True)
class Settings:
    run: str | None = None
    mode: Literal["best", "last"] = "best"
    episodes: int = 256
    scale: float = 1.0


def test_merge_keeps_types():
    part = merge(Part(), {"size": [1, 2], "layers": [], "limit": 3, "weights": {"fall": -1}}, "test")
    assert part == Part(size=(1.0, 2.0), layers=(), limit=3.0, weights=Weights(fall=-1.0))
    assert isinstance(part.size[0], float)
    assert isinstance(part.weights.fall, float)
    assert merge(part, plain(Part()), "test") == Part()
    assert merge(part, {"weights": Weights(run=9.0)}, "test").weights.run == 9.0


@pytest.mark.parametrize(
    "changes",
    [{"size": 1}, {"size": "ab"}, {"layers": [1.5]}, {"limit": "x"}, {"on": 1}, {"count": True}, {"weights": [1, 2]}],
)
def test_merge_refuses_other_types(changes: dict):
    with pytest.raises(UserError, match=f"test: {next(iter(changes))} is"):
        merge(Part(), changes, "test")


def test_change_takes_dotted_keys_one_after_another():
    part = change(Part(), {"weights": {"run": 2.0}, "weights.fall": -3, "count": 4}, "test")
    assert part == Part(weights=Weights(run=2.0, fall=-3.0), count=4)
    with pytest.raises(UserError, match=r"test: weights.fal is not a field of Weights; did you mean fall\?"):
        change(Part(), {"weights.fal": 1.0}, "test")


def test_flatten_and_plain_undo_change_and_merge():
    part = Part(layers=(1, 2), limit=0.5, weights=Weights(run=3.0))
    assert change(Part(), flatten(plain(part)), "test") == part
    assert merge(Part(), plain(part), "test") == part


def test_settings_are_key_equals_value():
    words = ["run=runs/ant/2030-01-01_12-00-00-42", "episodes=3", "scale=1e-3"]
    assert strict.settings(Settings(), words) == Settings("runs/ant/2030-01-01_12-00-00-42", episodes=3, scale=1e-3)
    assert strict.settings(Settings(run="x"), ["run=null"]).run is None
    assert strict.settings(Settings(), []) == Settings()


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("episodes", ["'episodes' is not a setting of the form key=value"]),
        ("=3", ["'=3' is not a setting of the form"]),
        ("episode=3", ["episode is not a setting; did you mean episodes?"]),
        ("zzz=3", ["zzz is not a setting; the settings are run, mode, episodes, scale"]),
        ("run.a=3", ["run is {'a': 3}", "text"]),
        ("episodes=", ["episodes is None", "whole number"]),
        ("episodes=many", ["episodes is 'many'", "whole number"]),
        ("episodes=[1", ["command line: "]),
        ("run=${nowhere}", ["command line: ", "nowhere"]),
        ("mode=worst", ["mode is 'worst'", "best, last"]),
        ("scale=true", ["scale is True", "a number"]),
    ],
)
def test_a_wrong_setting_is_one_sentence(word: str, parts: list[str]):
    with pytest.raises(UserError) as caught:
        strict.settings(Settings(), [word])
    said = str(caught.value)
    assert "\n" not in said
    for part in ["command line: ", *parts]:
        assert part in said


def test_exit_codes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def refuse(_: object) -> int:
        raise UserError("this cannot be done; do that")

    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    assert strict.exit_code(len, ["a", "b", "c"]) == 3
    assert strict.exit_code(refuse, []) == 2
    assert capsys.readouterr().err == "error: this cannot be done; do that\n"
    assert strict.exit_code(interrupt, []) == 130
    monkeypatch.setenv("MJXGYM_TRACEBACK", "1")
    with pytest.raises(UserError):
        strict.exit_code(refuse, [])


@pytest.mark.parametrize("error", [KeyError("no joint 'a'"), ValueError("no joint 'a'"), RuntimeError("no joint 'a'")])
def test_what_building_an_env_raises_is_a_user_error(error: Exception):
    with pytest.raises(UserError, match=r"^no joint 'a'$"), strict.building():
        raise error
    with pytest.raises(UserError, match=r"No such file or directory: '/gone'"), strict.building():
        open("/gone")  # noqa: SIM115
