"""`python -m mjxgym.bench`: what it prints. How fast anything is, no test says."""

from __future__ import annotations

import json
import math

import pytest

from mjxgym import bench

TINY = ("env=cartpole", "engine=c", "num_envs=8", "ppo.num_steps=4", "ppo.num_epochs=1", "ppo.hidden=[8]")


def test_a_table_and_last_one_line_of_json(capsys: pytest.CaptureFixture[str]):
    assert bench.main([*TINY, "iterations_per_call=1"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    assert list(report) == ["env", "engine", "num_envs", "substeps", *bench.Speed._fields, "machine"]
    assert (report["env"], report["engine"], report["num_envs"], report["substeps"]) == ("cartpole", "c", 8, 2)
    assert report["machine"]["versions"]["jax"]
    for name in bench.Speed._fields:
        assert any(name.replace("_", " ") in line for line in table), name
        assert math.isfinite(report[name]), name
        # The shares are differences of timings, which may come out below 0 where there is little to time.
        assert report[name] > 0 or name.endswith("_share"), name
    shares = [report[name] for name in bench.Speed._fields if name.endswith("_share")]
    assert sum(shares) + report["training_over_physics"] == pytest.approx(1.0)


def test_a_wrong_key_is_one_sentence_and_exit_code_two(capsys: pytest.CaptureFixture[str]):
    assert bench.main(["env=cartpole", "num_env=8"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "did you mean num_envs?" in said
