"""Train a task: python -m mjxgym.train env=ant

Settings are key=value words, with the keys of configs/<task>.yaml:
  env=NAME                 the task; env.KEY=... changes it, e.g. env.weights.effort=-0.1
  engine=auto|warp|jax|c   auto is warp on CUDA, jax on other accelerators, c on CPU
  num_envs= seed= iterations= run_dir=     ppo.learning_rate=1e-3 and all of ppo.*     wandb.mode=online|offline
  resume=auto|RUN          go on with the task's newest run under runs/, or with that run
  -m seed=1,2,3            Hydra's multirun: one run per value; --cfg job shows all settings and stops

Ctrl-C finishes the current call, saves and exits with 130; a second one kills. Exit code 2: it cannot be done as asked.
"""

# Wiring only: config -> env -> learner -> files. Between two XLA calls Python logs and saves, nothing else.

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mjxgym import cache, checkpoint, command_line, config, faults, log, machine, measure, ppo, strict, video, xla
from mjxgym.build import Built, build
from mjxgym.config import TrainConfig
from mjxgym.envs.faults import snapshot
from mjxgym.strict import UserError
from mjxgym.watch import Final, Moment, Watch

# `best` is the best mean over this many finished episodes, or over one iteration's if those are more.
BEST_EPISODES = 100


class Progress(NamedTuple):
    """How far a run is; kept beside its checkpoints."""

    iteration: int = 0
    seconds_training: float = 0.0
    seconds_compile: float = 0.0
    best: float | None = None  # highest mean return so far, of at least BEST_EPISODES episodes
    recent: tuple[tuple[float, float], ...] = ()  # (episodes, mean return) of the latest iterations that make them up

    @property
    def mean_return(self) -> float | None:
        """Over `recent`; None while too few episodes have finished."""
        episodes = sum(count for count, _ in self.recent)
        return sum(count * mean for count, mean in self.recent) / episodes if episodes >= BEST_EPISODES else None

    def after(self, rows: Sequence[log.Row]) -> Progress:
        """The progress after these rows."""
        recent = [*self.recent, *((row["episodes"], row["return/mean"]) for row in rows if row["episodes"] > 0)]
        while sum(count for count, _ in recent[1:]) >= BEST_EPISODES:
            recent.pop(0)
        last = rows[-1]
        now = self._replace(
            iteration=int(last["iteration"]), seconds_training=last["seconds_training"], recent=tuple(recent)
        )
        better = now.mean_return is not None and (self.best is None or now.mean_return > self.best)
        return now._replace(best=now.mean_return) if better else now


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    xla.tune()
    return strict.exit_code(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """One run, or a sweep of them."""
    if any(word in ("-h", "--help") for word in argv):
        print(f"{__doc__}\nTasks: {', '.join(config.task_names())}")
        return 0
    if any(word.startswith("-") for word in argv):
        return hydra_run(argv)
    return train(command_line.load(argv))


def hydra_run(argv: Sequence[str]) -> int:
    """Let Hydra make the command lines, e.g. of `-m seed=1,2,3`, and start each with its launcher."""
    import hydra
    from hydra._internal.utils import get_args_parser

    words = command_line.parse(get_args_parser().parse_args(list(argv)).overrides)  # refused now, not at the third run
    if any(word.key == "resume" for word in words):
        raise UserError("command line: resume goes on with one run; it cannot be part of a sweep")
    command_line.register(command_line.tasks_of(words))
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of being printed
    before, sys.argv = sys.argv, [sys.argv[0], *argv]
    try:
        hydra.main(version_base="1.3", config_path=None, config_name="train")(hydra_job)()
    finally:
        sys.argv = before
    return 0


def hydra_job(_: Any) -> None:
    """One run of a sweep. It loads its own words, so that a remote machine's preset is that machine's."""
    from hydra.core.hydra_config import HydraConfig

    code = train(command_line.load(list(HydraConfig.get().overrides.task)))
    if code:
        sys.exit(code)


def train(wanted: TrainConfig) -> int:
    """Train until `iterations`, or until asked to stop; returns the exit code."""
    kept = cache.enable()
    built, settings = build(wanted)
    if settings.video.every or settings.video.at_end:
        video.check(built, settings.video)
    folder, final = open_run(wanted, settings), Final()
    try:
        with ExitStack() as stack:
            began = time.perf_counter()
            ts, progress = start(built, settings, folder if wanted.resume else None)
            terminal = stack.enter_context(closing(log.Terminal(settings.iterations, progress.iteration)))
            if not wanted.resume and (preset := config.cpu_preset(wanted)):
                terminal.say(preset)
            if kept is None:
                terminal.say(f"{cache.folder()} cannot be written, so compiled code is not kept; set MJXGYM_CACHE")
            terminal.say(f"{settings.task} on engine {settings.engine}, {machine.device()}, run {folder}")
            if progress.iteration:
                terminal.say(f"resumed at iteration {progress.iteration}")
            if changed := config.changed_since(folder, settings.task):
                terminal.say(changed)
            if progress.iteration < settings.iterations:
                call = compile_call(built, settings, ts)
                seconds = time.perf_counter() - began
                terminal.say(f"compiled in {seconds:.1f} s")
                progress = progress._replace(seconds_compile=progress.seconds_compile + seconds)
                table = log.Csv(folder / log.METRICS_FILE, progress.iteration)
                board = log.TensorBoard(folder / "tensorboard", progress.iteration * steps_per_iteration(settings))
                wandb = log.Wandb(settings, folder)
                sinks: list[log.Sink] = [terminal, table, board, wandb]
                for sink in sinks[1:]:
                    stack.enter_context(closing(sink))
                watch = Watch(
                    built, settings, folder, progress.iteration, late=(board, wandb), show=wandb.video, say=terminal.say
                )
                stack.enter_context(closing(watch))
                keep = partial(keep_faults, folder, built, settings, terminal.say)
                progress, stopped = loop(settings, folder, call, keep, ts, progress, sinks, watch, terminal.say)
                if not stopped:
                    final = watch.final()
            else:
                stopped = False
        finish(settings, folder, progress, stopped, final)
    except OSError as error:
        saved = folder / config.CHECKPOINTS / "last"
        intact = f"; the checkpoint {saved} is intact, resume={folder} goes on from it" if saved.exists() else ""
        raise UserError(f"cannot write to {folder}: {error.strerror or error}{intact}") from error
    return 130 if stopped else 0


def open_run(wanted: TrainConfig, settings: TrainConfig) -> Path:
    """The run folder, made if it is a new run, with config.yaml and machine.json in it."""
    folder = Path(wanted.resume or wanted.run_dir or new_name(settings)).expanduser()
    if not wanted.resume and (folder / config.CHECKPOINTS).exists():
        raise UserError(f"run_dir={folder} already holds a run; go on with it by resume={folder}, or choose another")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config.save_run(settings, folder)
        machine.write(free_name(folder / "machine.json"), settings.engine)  # one for each part of a resumed run
    except OSError as error:
        raise UserError(f"run_dir={folder} cannot be written: {error.strerror}") from error
    return folder


def new_name(settings: TrainConfig) -> Path:
    """runs/<task>/<date-time>-<seed>, numbered if two start in the same second."""
    return free_name(Path("runs", settings.task, f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{settings.seed}"))


def free_name(path: Path) -> Path:
    """`path`, or the first of name.2, name.3... that does not exist yet."""
    found, number = path, 1
    while found.exists():
        number += 1
        found = path.with_name(f"{path.stem}.{number}{path.suffix}")
    return found


def start(built: Built, settings: TrainConfig, resume: Path | None) -> tuple[ppo.TrainState, Progress]:
    """The state to go on from, fresh or from the folder's `last` checkpoint."""
    init = partial(ppo.init, built.vec, built.net, settings.ppo, settings.num_envs)
    key = jax.random.key(settings.seed)
    if resume is None:
        return jax.block_until_ready(init(key)), Progress()
    ts, note = checkpoint.restore(resume / config.CHECKPOINTS / "last", jax.eval_shape(init, key), settings.task)
    return ts, Progress(**note)._replace(recent=tuple((count, mean) for count, mean in note["recent"]))


Cases = dict[str, ppo.Case]
Call = Callable[[ppo.TrainState, int], tuple[ppo.TrainState, dict[str, np.ndarray], Cases]]


def compile_call(built: Built, settings: TrainConfig, ts: ppo.TrainState) -> Call:
    """`ts, count -> ts, metrics, what led to quarantines`, ready to run at full speed.

    It runs one iteration on a copy and forgets it, since some code (Warp's kernels) is compiled or loaded by the first
    call only. So training time has no compiling in it, not even of this kind.
    """
    size = settings.iterations_per_call
    lowered = ppo.train_many.lower(built.vec, built.net, settings.ppo, ts, np.int32(1), size, snapshot)
    compiled = lowered.compile()

    def call(ts: ppo.TrainState, count: int) -> tuple[ppo.TrainState, dict[str, np.ndarray], Cases]:
        ts, metrics, cases = compiled(built.vec, ts, np.int32(count))
        metrics, cases = jax.device_get((metrics, cases))
        return jax.block_until_ready(ts), metrics, cases

    call(jax.tree.map(jnp.copy, ts), 1)
    return call


def loop(
    settings: TrainConfig, folder: Path, call: Call, keep: Callable[[Cases], None], ts: ppo.TrainState,
    progress: Progress, sinks: Sequence[log.Sink], watch: Watch, say: Callable[[str], None],
) -> tuple[Progress, bool]:  # fmt: skip
    """Call, log, look, save; (where it ended, whether it was asked to stop)."""
    save = partial(checkpoint.save, task=settings.task)
    checkpoints, best, saved_at = folder / config.CHECKPOINTS, None, time.monotonic()
    # The call runs in a thread of its own, so that a signal is seen while it runs.
    with ThreadPoolExecutor(max_workers=1) as worker, stop_on_signal(say) as stop:
        while progress.iteration < settings.iterations and not stop.asked:
            count = min(settings.iterations_per_call, settings.iterations - progress.iteration)
            began = time.perf_counter()
            ts, metrics, cases = worker.submit(call, ts, count).result()
            seconds = time.perf_counter() - began
            keep(cases)
            rows = log.table(
                metrics, count, progress.iteration, steps_per_iteration(settings),
                progress.seconds_training, seconds, progress.seconds_compile,
            )  # fmt: skip
            before, progress = progress, progress.after(rows)
            for sink in sinks:
                sink.write(rows)
            if progress.best != before.best:
                best = checkpoint.fetch(ts), progress._asdict()
            steps = progress.iteration * steps_per_iteration(settings)
            moment = Moment(progress.iteration, steps, progress.seconds_training)
            worker.submit(watch.after, ts, moment, before.iteration).result()
            over = progress.iteration >= settings.iterations or stop.asked
            if over or time.monotonic() - saved_at >= settings.save_seconds:
                if over and best is None and not (checkpoints / "best").exists():
                    best = ts, progress._asdict()  # too few episodes to judge by
                if best is not None:
                    save(checkpoints / "best", best[0], note=best[1])
                    best = None
                save(checkpoints / "last", ts, note=progress._asdict())
                saved_at = time.monotonic()
        return progress, stop.asked


def keep_faults(
    folder: Path, built: Built, settings: TrainConfig, say: Callable[[str], None], cases: Mapping[str, ppo.Case]
) -> None:
    """A file for the first quarantine of each cause, once per run."""
    for cause, case in cases.items():
        if int(case.length) and not (folder / faults.FOLDER / f"{cause}.npz").exists():
            path = faults.write(folder, cause, case, built, settings)
            say(f"a world broke ({cause}): python -m mjxgym.play replay={path} shows its last steps")


@dataclass
class Stop:
    """Set by the first signal."""

    asked: bool = False


@contextmanager
def stop_on_signal(say: Callable[[str], None]) -> Iterator[Stop]:
    """The first SIGINT or SIGTERM asks to stop, the second has its default effect."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # a launcher's thread: signals are not ours
        yield stop
        return

    def ask(number: int, _: Any) -> None:
        stop.asked = True
        signal.signal(number, signal.SIG_DFL)
        say("stopping: finishing the current call, then saving (once more to stop at once)")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def steps_per_iteration(settings: TrainConfig) -> int:
    """Env steps of one iteration."""
    return settings.num_envs * settings.ppo.num_steps


def finish(settings: TrainConfig, folder: Path, progress: Progress, stopped: bool, final: Final) -> None:
    """Draw the learning curve and say how it went, what the reward was made of and what can be done next."""
    from mjxgym import plot, terms

    shares: list[str] = []
    if progress.iteration:
        drawn = plot.read(folder)
        plot.draw([drawn], folder / plot.PICTURE)
        shares = terms.report(drawn.contributions)
    best = f"none yet: fewer than {BEST_EPISODES} episodes have finished"
    if progress.best is not None:
        best = f"{progress.best:.1f} (mean of {BEST_EPISODES} episodes or more)"
    steps = progress.iteration * steps_per_iteration(settings)
    lines = [
        f"{'stopped' if stopped else 'finished'} at iteration {progress.iteration} of {settings.iterations}: "
        f"{steps:,} env steps in {progress.seconds_training:.1f} s",
        f"compiling    {progress.seconds_compile:.1f} s",
        f"best return  {best}",
        *(f"{'' if index else 'reward':13}{line}" for index, line in enumerate(shares)),
        *(f"evaluated    {line}" for line in judged(final)),
        *(f"video        {film.path} ({film.renderer}, {film.seconds:.1f} s)" for film in [final.film] if film),
        f"run folder   {folder}",
        f"evaluate     python -m mjxgym.evaluate run={folder}",
        f"go on        python -m mjxgym.train resume={folder}"
        + ("" if stopped else f" iterations={2 * settings.iterations}"),
    ]
    print("\n".join(lines))


def judged(final: Final) -> list[str]:
    """How good the best checkpoint is, and whether it is so in C MuJoCo too; nothing where it was not evaluated."""
    here = final.here
    if here is None:
        return []
    line = f"{here.return_mean:.1f}{measure.around(here.return_interval)} on engine {here.engine}"
    if final.kept is None:
        return [line]
    flag = f": less than {100 * measure.KEPT:.0f} %, so the policy leans on engine {here.engine}"
    return [f"{line}; engine c keeps {final.kept} of it{flag if final.kept.share < measure.KEPT else ''}"]


if __name__ == "__main__":
    sys.exit(main())
