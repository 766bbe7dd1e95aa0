"""Export a trained policy to run without mjxgym: python -m mjxgym.export run=runs/ant/2030-01-01_12-00-00-42

  run=PATH                  the run folder
  checkpoint=best|last      which of its checkpoints
  out=PATH                  RUN/policy.onnx by default; the suffix says what it becomes:
    .onnx                   ONNX, for onnxruntime and its like, with the metadata inside
    .stablehlo              for jax.export.deserialize, on CPU or CUDA, with the metadata in PATH.json beside it

Observations go in as the task makes them (the normaliser is inside), the mean action comes out as the task applies it
(clipped), in float32. The batch axis is free. A memory goes in and comes out; its start is in the metadata. The file is
run against the policy in JAX and kept only if they agree. Exit code 2: it cannot be done as asked.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax import export as jax_export

from mjxgym import cache, checkpoint, config, metadata, strict
from mjxgym.actor import Actor, Step, Traced, differences, trace
from mjxgym.build import Policy, build
from mjxgym.config import TrainConfig
from mjxgym.strict import UserError


@dataclass(frozen=True)
class Settings:
    """What the command line may say."""

    run: str | None = None
    checkpoint: Literal["best", "last"] = "best"
    out: str | None = None  # None: policy.onnx in the run folder


class Exported(NamedTuple):
    """What was written, and how far from JAX it is."""

    path: Path
    metadata: dict[str, Any]
    found: dict[int, float]  # largest difference, by multiples of the observations' standard deviation


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    # A policy is small, and float32 is float32 there. A GPU is left to the training that may be running on it.
    jax.config.update("jax_platforms", "cpu")
    return strict.exit_code(run, sys.argv[1:] if argv is None else argv)


def run(argv: Sequence[str]) -> int:
    """Export, and say what came of it."""
    if any(word in ("-h", "--help") for word in argv):
        print(__doc__)
        return 0
    settings = load(argv)
    cache.enable()
    with jax.default_device(jax.devices("cpu")[0]):
        print(summary(export(settings)))
    return 0


def load(argv: Sequence[str]) -> Settings:
    """The command line's words as types, checked; `out` is given a value."""
    settings = strict.settings(Settings(), argv)
    if settings.run is None:
        raise UserError("run is missing: say run=PATH, the folder of a training run")
    out = Path(settings.out or Path(settings.run, "policy.onnx")).expanduser()
    if out.suffix not in WRITERS:
        raise UserError(f"out={out} must end in {' or '.join(WRITERS)}, which says what to write")
    for package in ("onnx", "onnxruntime") if out.suffix == ".onnx" else ("flatbuffers",):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise UserError(f"out={out} needs the package {package}: pip install -e '.[export]'") from error
    return replace(settings, out=str(out))


def export(settings: Settings) -> Exported:
    """Rebuild the run's network, restore its policy, write, check."""
    folder, out = Path(settings.run or "").expanduser(), Path(settings.out or "")
    saved = config.load_run(folder)
    if changed := config.changed_since(folder, saved.task):
        print(changed)
    saved.check()
    if not out.parent.is_dir():
        raise UserError(f"out={out}: there is no folder {out.parent}; make it first")
    if out.is_dir():
        raise UserError(f"out={out} is a folder; name a file")
    # A policy depends on no engine, and c is everywhere. Parameters are float32 whatever the matmuls were trained in.
    env, actor = rebuild(replace(saved, engine="c", ppo=replace(saved.ppo, dtype="float32")))
    path = folder / config.CHECKPOINTS / settings.checkpoint
    policy, note = checkpoint.restore(path, actor.shapes(), saved.task)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(policy)):
        raise UserError(f"the policy in {path} has numbers that are not finite; use another checkpoint")
    about = metadata.describe(saved, env, actor)
    about |= {"checkpoint": settings.checkpoint, "iteration": note["iteration"], "trained_in": saved.ppo.dtype}
    if saved.ppo.dtype != "float32":
        _, trained = rebuild(replace(saved, engine="c"))
        rounding = differences(trained.compiled(policy), actor.compiled(policy, "highest"), actor, policy)
        # By multiples of the observations' standard deviation, as text, which is what keys are in json.
        about["difference_from_trained"] = {str(scale): worst for scale, worst in rounding.items()}
    return Exported(out, about, save(out, actor, policy, about))


def rebuild(wanted: TrainConfig) -> tuple[Any, Actor]:
    """A run's env, and the acting half of its network."""
    built, _ = build(wanted)
    obs = jax.eval_shape(built.vec.env.reset, jax.random.key(0)).obs
    return built.vec.env, Actor(built.net, obs, wanted.ppo.normalise_obs, wanted.ppo.obs_clip)


def save(out: Path, actor: Actor, policy: Policy, about: dict[str, Any]) -> dict[int, float]:
    """Write under another name, check, and only then put in place; the differences from JAX."""
    draft = out.with_name(f".{os.getpid()}-{out.name}")
    drafts = {draft: out, sidecar(draft): sidecar(out)}
    try:
        step = WRITERS[out.suffix](draft, trace(actor, policy), about)
        found = differences(step, actor.compiled(policy, "highest"), actor, policy)
        check(found, actor.tolerances)
        for written, wanted in drafts.items():
            if written.exists():
                written.replace(wanted)
    except OSError as error:
        raise UserError(f"out={out} cannot be written: {error.strerror or error}") from error
    finally:
        for written in drafts:
            written.unlink(missing_ok=True)
    return found


def check(found: dict[int, float], tolerances: dict[int, float]) -> None:
    """UserError if a difference is beyond its tolerance, or is not a number."""
    for scale, worst in found.items():
        if not worst <= tolerances[scale]:
            raise UserError(
                f"the written policy differs from JAX's by {worst:.1e} on observations at {scale} standard deviations, "
                f"more than {tolerances[scale]:.0e}; nothing was kept"
            )


def write_onnx(path: Path, traced: Traced, about: dict[str, Any]) -> Step:
    """An ONNX file with the metadata in it, read back by onnxruntime."""
    import onnx
    import onnxruntime

    from mjxgym import onnx_graph

    text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
    onnx.save(onnx_graph.model(traced.program, traced.constants, traced.inputs, traced.outputs, text), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda *arrays: session.run(None, dict(zip(traced.inputs, arrays, strict=True)))


def write_stablehlo(path: Path, traced: Traced, about: dict[str, Any]) -> Step:
    """What `jax.export` serialises, and the metadata beside it; read back by `jax.export`."""
    made = jax_export.export(jax.jit(traced.step), platforms=("cpu", "cuda"))(*traced.shapes)
    path.write_bytes(made.serialize())
    sidecar(path).write_text(json.dumps(about, indent=1) + "\n")
    return jax.jit(jax_export.deserialize(bytearray(path.read_bytes())).call)


WRITERS: dict[str, Callable[[Path, Traced, dict[str, Any]], Step]] = {
    ".onnx": write_onnx,
    ".stablehlo": write_stablehlo,
}


def sidecar(out: Path) -> Path:
    """Where the metadata lies of a file that cannot hold it."""
    return out.with_name(out.name + ".json")


def summary(exported: Exported) -> str:
    """For people's eyes."""
    about = exported.metadata
    sides = {
        side: ", ".join(f"{one['name']} [{', '.join(map(str, one['shape']))}]" for one in about[side])
        for side in ("inputs", "outputs")
    }
    lines = [
        f"{about['task']}, {about['checkpoint']} checkpoint (iteration {about['iteration']})",
        f"inputs     {sides['inputs']}",
        f"outputs    {sides['outputs']}",
        f"differs    {apart(exported.found)} from the policy in JAX",
    ]
    if "difference_from_trained" in about:
        lines.append(
            f"           {apart(about['difference_from_trained'])} from it in {about['trained_in']}, as trained"
        )
    return "\n".join([*lines, str(exported.path)])


def apart(found: Mapping[Any, float]) -> str:
    """The largest differences on observations as spread as the normaliser saw them, and more."""
    return "at most " + ", ".join(f"{worst:.1e} at {scale} std" for scale, worst in found.items())


if __name__ == "__main__":
    sys.exit(main())
