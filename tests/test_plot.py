"""`python -m mjxgym.plot`: run folders in, a picture out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mjxgym import config, log, plot
from mjxgym.config import task_config
from mjxgym.envs import ant, cartpole

TERMS = {"cartpole": cartpole.Reward._fields, "ant": ant.Reward._fields}


def make_run(folder: Path, task: str = "cartpole", count: int = 20, level: float = 1.0, **settings: Any) -> Path:
    """A run folder as training leaves it; its return rises by `level` per iteration from the second on."""
    folder.mkdir(parents=True)
    config.save_run(dataclasses.replace(task_config(task), engine="c", **settings), folder)
    (folder / "machine.json").write_text(json.dumps({"device": "a processor"}))
    names = ("return/mean", "episode_length/mean", "learning_rate", "kl", "nonfinite/total", "overflow/total")
    metrics = {name: level * np.arange(count, dtype=np.float32) for name in names}
    metrics |= {f"reward/{term}": np.full(count, index + 1.0) for index, term in enumerate(TERMS[task])}
    metrics["return/mean"][0] = np.nan
    sink = log.Csv(folder / log.METRICS_FILE, 0)
    sink.write(log.table(metrics, count, 0, 1000, 0.0, 10.0 / level, 1.0))
    sink.close()
    return folder


def drawn(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert plot.main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


def panels(*folders: Path) -> tuple[Figure, list[plot.Group]]:
    """The block of one task, and its groups."""
    groups = plot.group([plot.read(folder) for folder in folders])
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    (part,) = figure.subfigures(1, 1, squeeze=False)[0]
    plot.draw_task(part, "cartpole", groups)
    return figure, groups


def texts(figure: Figure) -> set[str]:
    return {text.get_text() for axes in figure.axes for text in axes.texts}


def test_one_run_is_drawn_into_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = make_run(tmp_path / "run")
    assert plot.main([str(run)]) == 0
    assert capsys.readouterr().out == f"{run}/learning_curve.png\n"
    assert drawn(run / "learning_curve.png")


def test_several_tasks_have_blocks_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", task="ant"), make_run(tmp_path / "c", num_envs=7)]
    assert plot.main([str(run) for run in runs]) == 0
    assert capsys.readouterr().out == "learning_curves.png\n"
    assert drawn(tmp_path / "learning_curves.png")
    assert plot.main([*map(str, runs), f"out={tmp_path}/here.svg"]) == 0
    assert (tmp_path / "here.svg").read_text().startswith("<?xml")


def test_runs_that_differ_only_in_seed_and_length_are_one_group(tmp_path: Path):
    small = [make_run(tmp_path / f"small{seed}", seed=seed, iterations=20 + seed) for seed in (1, 2)]
    large = make_run(tmp_path / "large", seed=1, num_envs=2048)
    only = plot.group([plot.read(run) for run in small])
    assert [(one.label, len(one.runs)) for one in only] == [("", 2)]
    both = plot.group([plot.read(run) for run in (*small, large)])
    assert [(one.label, len(one.runs)) for one in both] == [("num_envs=512", 2), ("num_envs=2048", 1)]
    assert plot.title("cartpole", only) == "cartpole: engine c, 512 envs, a processor, seeds 1, 2"
    assert plot.title("cartpole", both) == "cartpole: engine c, a processor"


def test_a_group_is_labelled_by_every_setting_that_differs(tmp_path: Path):
    base = task_config("cartpole")
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", ppo=dataclasses.replace(base.ppo, learning_rate=1e-3))]
    runs.append(make_run(tmp_path / "c", num_envs=64))
    labels = [one.label for one in plot.group([plot.read(run) for run in runs])]
    assert labels[1] == "num_envs=512  ppo.learning_rate=0.001"
    assert labels[2] == "num_envs=64  ppo.learning_rate=0.0003"


def test_the_median_is_taken_where_all_runs_are():
    x = np.arange(5.0)
    found = plot.curve([(x, 0 * x), (x[:4], 10 + x[:4]), (x[1:], 4 + 0 * x[1:])])
    assert (found.x[0], found.x[-1]) == (1.0, 3.0)
    np.testing.assert_allclose(found.median, 4.0)
    np.testing.assert_allclose(found.low, 0.0)
    np.testing.assert_allclose(found.high, 10 + found.x)
    assert len(plot.curve([(x, x), (x + 10, x)]).x) == 0  # no stretch in common
    assert len(plot.curve([(x, x), (x[:0], x[:0])]).x) == 0
    assert plot.curve([(x, x)]).median.tolist() == x.tolist()


def test_names_stand_apart_and_move_as_little_as_they_can():
    assert plot.spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    assert plot.spread([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])
    assert plot.spread([0.0, 0.5, 0.52, 1.0], 0.1) == pytest.approx([0.0, 0.46, 0.56, 1.0])
    assert plot.spread([], 0.1) == []


def test_the_picture_says_what_it_shows(tmp_path: Path):
    figure, _ = panels(make_run(tmp_path / "a", seed=1), make_run(tmp_path / "b", seed=2))
    steps, seconds, contributions = figure.axes
    assert (steps.get_xlabel(), seconds.get_xlabel()) == ("env steps", "training time without compiling, s")
    assert steps.get_ylabel() == "mean return of finished episodes"
    assert contributions.get_ylabel() == "reward per control step"
    assert texts(figure) == {*TERMS["cartpole"], "sum"}
    legend = steps.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "thick: median of the runs; band: lowest to highest"
    assert [text.get_text() for text in legend.get_texts()] == ["2 runs"]


def test_contributions_are_weighted(tmp_path: Path):
    run = plot.read(make_run(tmp_path / "run"))
    found = {name: float(x[0]) for name, x in run.contributions.items()}
    assert found == {"alive": 1.0, "angle": -2.0, "cart_speed": -0.03, "pole_speed": -0.02, "failure": -10.0}


def test_a_task_without_weights_is_drawn_without_contributions(tmp_path: Path):
    run = make_run(tmp_path / "run")
    page = (run / config.CONFIG_FILE).read_text()
    (run / config.CONFIG_FILE).write_text(page.replace("weights:", "worth:"))
    assert texts(panels(run)[0]) == {"the settings name no weights (env.weights)"}


def test_a_run_without_a_finished_episode_says_so(tmp_path: Path):
    assert "no episode finished" in texts(panels(make_run(tmp_path / "run", count=1))[0])


def test_a_row_cut_short_is_no_row(tmp_path: Path):
    run = make_run(tmp_path / "run", count=5)
    path = run / log.METRICS_FILE
    path.write_text(path.read_text()[:-7])
    assert len(plot.read(run).columns["env_steps"]) == 4


def test_a_run_without_machine_json_is_drawn(tmp_path: Path):
    run = make_run(tmp_path / "run")
    (run / "machine.json").unlink()
    assert plot.read(run).device is None
    assert plot.main([str(run)]) == 0


def test_a_mistake_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = make_run(tmp_path / "run")
    assert "no run is named: say python -m mjxgym.plot RUN" in refusal(capsys)
    assert "/no/such is not a run folder: it has no config.yaml" in refusal(capsys, "/no/such")
    assert f"such as {run}, or all, {tmp_path}/*?" in refusal(capsys, str(tmp_path))
    assert "'to=x.png' is neither a run folder nor out=FILE.png" in refusal(capsys, str(run), "to=x.png")
    assert "out=x.jpg must end in .png, .pdf or .svg" in refusal(capsys, str(run), "out=x.jpg")
    said = refusal(capsys, str(run), f"out={tmp_path}/no/x.png")
    assert said == f"error: cannot write {tmp_path}/no/x.png: No such file or directory\n"


def test_metrics_that_cannot_be_drawn_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = make_run(tmp_path / "run", count=3)
    path = run / log.METRICS_FILE
    page = path.read_text()
    for text, part in (
        ("", "has no row yet"),
        (page.splitlines(keepends=True)[0], "has no row yet"),
        (page.replace("return/mean", "return"), "has no column return/mean"),
        (page.replace("\n2,", "\ntwo,"), "is damaged: line 3 is not 16 numbers"),
        (page.replace("\n2,", "\n"), "is damaged: line 3 is not 16 numbers"),
    ):
        path.write_text(text)
        assert f"{path} {part}" in refusal(capsys, str(run))
    path.write_bytes(b"\xff\xfe\n")
    assert "is damaged: it is not text" in refusal(capsys, str(run))
    path.unlink()
    assert "metrics.csv is missing" in refusal(capsys, str(run))


def test_help_says_how(capsys: pytest.CaptureFixture[str]):
    assert plot.main(["--help"]) == 0
    assert "python -m mjxgym.plot RUN [RUN ...]" in capsys.readouterr().out
