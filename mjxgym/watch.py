"""Looking at a policy while it is trained: evaluations, in the training's engine and in engine c, and films.

Where an accelerator trains, what needs engine c (the CPU) runs beside the training, in one thread, and its results come
between later calls; the evaluation in the training's own engine interrupts the training. On a CPU all of it does. None
of it counts as training time, and trouble in it is one warning.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax

from mjxgym import build, log, measure, ppo, video
from mjxgym.build import Built, Policy
from mjxgym.config import TrainConfig
from mjxgym.measure import Kept, Summary
from mjxgym.physics import render

EVALUATIONS = "evaluations.csv"
VIDEOS = "videos"  # a folder of those made during training
VIDEO = "video.mp4"  # of the best checkpoint


class Late(Protocol):
    """Where a row goes that is about a state which training may have left behind."""

    def write_late(self, row: log.Row) -> None:
        """Take the row; its x is `eval/env_steps`."""
        ...


class Moment(NamedTuple):
    """Where the training was when a policy was taken."""

    iteration: int
    env_steps: int
    seconds_training: float


class Final(NamedTuple):
    """What is known of the best checkpoint when training has ended; None where it was not wanted or failed."""

    here: Summary | None = None
    kept: Kept | None = None  # in engine c; also None where the training's engine is c, or the return not positive
    film: render.Film | None = None


def row(moment: Moment, here: Summary, there: Summary, waited: float) -> log.Row:
    """An evaluation as a row of `evaluations.csv`; the gap is engine c's minus the training engine's."""
    kept = measure.kept(here, there)
    return {
        "iteration": moment.iteration,
        log.LATE_STEPS: moment.env_steps,
        "seconds_training": moment.seconds_training,
        "eval/return": here.return_mean,
        "eval/return_interval": math.nan if here.return_interval is None else here.return_interval,
        "eval/length": here.length_mean,
        "gap/return": there.return_mean - here.return_mean,
        "gap/length": there.length_mean - here.length_mean,
        "gap/kept": math.nan if kept is None else kept.share,
        # Wall time for which training stood still.
        "eval/seconds": waited,
    }


class Watch:
    """Evaluations and films of one run."""

    def __init__(
        self, built: Built, settings: TrainConfig, folder: Path, iteration: int, late: Sequence[Late],
        show: Callable[[Path, int], None], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`show` takes a film and the env steps after which it was made; `say` a line for the terminal."""
        self._built, self._settings, self._folder = built, settings, folder
        self._late, self._show, self._say = late, show, say
        self._table = log.Csv(folder / EVALUATIONS, iteration)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="watch")
        self._jobs: list[Future[Callable[[], None]]] = []
        self._failed: set[str] = set()
        self.seconds = 0.0  # that the training has waited for

    def after(self, ts: ppo.TrainState, moment: Moment, before: int) -> None:
        """Between two calls: start what is due since iteration `before`, and take in what has been found."""
        began = time.perf_counter()
        self._take(wait=False)

        def due(every: int) -> bool:
            return every > 0 and moment.iteration // every > before // every

        if due(self._settings.eval.every):
            self._evaluate(Policy(ts.params, ts.obs_stats), moment)
        if due(self._settings.video.every):
            self._film(jax.device_get(Policy(ts.params, ts.obs_stats)), moment)
        if jax.default_backend() == "cpu":  # there is nothing to run beside
            self._take(wait=True)
        self.seconds += time.perf_counter() - began

    def close(self) -> None:
        """Wait for what is still going on."""
        waiting = [job for job in self._jobs if not job.done()]
        if waiting:
            self._say("waiting for the evaluations and films that are still being made")
        self._take(wait=True)
        self._worker.shutdown()
        self._table.close()

    def final(self) -> Final:
        """Evaluate and film the best checkpoint."""
        settings, found = self._settings, Final()
        if settings.eval.at_end:
            found = self._spared("evaluation", self._judge) or found
        if settings.video.at_end:
            found = found._replace(film=self._spared("video", self._show_best))
        return found

    @cached_property
    def _in_c(self) -> Built:
        return self._built if self._settings.engine == "c" else video.rebuild(self._settings, "c")

    def _evaluate(self, policy: Policy, moment: Moment) -> None:
        if "evaluation" in self._failed:
            return
        began = time.perf_counter()
        here = self._spared("evaluation", lambda: self._measure(self._built, policy))
        if here is None:
            return
        waited = time.perf_counter() - began
        fetched = jax.device_get(policy)

        def there() -> Callable[[], None]:
            summary = here if self._settings.engine == "c" else self._measure(self._in_c, fetched)
            return lambda: self._write(row(moment, here, summary, waited))

        self._jobs.append(self._worker.submit(self._job, "evaluation", there))

    def _film(self, policy: Policy, moment: Moment) -> None:
        path = self._folder / VIDEOS / f"{moment.iteration:06}.mp4"

        def shoot() -> Callable[[], None]:
            path.parent.mkdir(exist_ok=True)
            self._shoot(policy, path)
            return lambda: self._show(path, moment.env_steps)

        if "video" not in self._failed:
            self._jobs.append(self._worker.submit(self._job, "video", shoot))

    def _judge(self) -> Final:
        policy, note = self._best()
        here = self._measure(self._built, policy)
        summaries, kept = [here], None
        if here.engine != "c":
            summaries.append(self._measure(self._in_c, policy))
            kept = measure.kept(*summaries)
        saved = self._settings
        measure.record(self._folder, measure.about(saved, "best", note["iteration"], saved.seed), summaries)
        return Final(here, kept)

    def _show_best(self) -> render.Film:
        policy, note = self._best()
        film = self._shoot(policy, self._folder / VIDEO)
        steps = note["iteration"] * self._settings.num_envs * self._settings.ppo.num_steps
        self._show(film.path, steps)
        return film

    def _best(self) -> tuple[Policy, dict[str, Any]]:
        return build.restore(self._built, self._settings, self._folder, "best")

    def _measure(self, built: Built, policy: Policy) -> Summary:
        return measure.measure(built, policy, self._settings.ppo, self._settings.eval.episodes, self._settings.seed)

    def _shoot(self, policy: Policy, path: Path) -> render.Film:
        settings = self._settings
        return video.film(self._in_c, policy, settings.ppo, settings.video, path, settings.seed)

    def _write(self, row: log.Row) -> None:
        self._table.write([row])
        shown = {name: value for name, value in row.items() if name.startswith(("eval/", "gap/"))}
        for sink in self._late:
            sink.write_late(shown)

    def _take(self, wait: bool) -> None:
        """Write what has been found; only the training's thread does, since the sinks are its own."""
        ready = list(self._jobs) if wait else [job for job in self._jobs if job.done()]
        for job in ready:
            self._jobs.remove(job)
            job.result()()

    def _job(self, what: str, work: Callable[[], Callable[[], None]]) -> Callable[[], None]:
        return self._spared(what, work) or (lambda: None)

    def _spared(self, what: str, work: Callable[[], Any]) -> Any:
        """What `work` gives; None, and one warning for all of a kind, where it fails or has failed before."""
        if what in self._failed:
            return None
        try:
            return work()
        except Exception as error:
            self._failed.add(what)
            reason = " ".join(str(error).split()) or type(error).__name__
            print(f"warning: {what} does not work ({reason}); training goes on without it", file=sys.stderr)
            return None
