"""The acting half of a policy, alone: observations to actions, nothing of the critic; and how far two of them differ.

Axes: B batch, T time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, export
from jax.extend import core
from jax.interpreters import partial_eval

from mjxgym import checkpoint, ppo
from mjxgym.build import Policy
from mjxgym.ppo.normalise import EPSILON, moments, normalise

# What a check draws: so many observations, at these multiples of the spread that the normaliser has seen.
COUNT = 1000
SCALES = (1, 100)
# How far apart two right float32 programs may be, of actions in [-1, 1], for a network whose inputs are within REACH.
# Where they are larger, because no clip or a wide one is before it, rounding is too.
TOLERANCE = 1e-5
REACH = 10.0
STEPS = 20  # in sequence, where the policy has a memory


# (obs [B, size], *memory [B, ...]) -> (action [B, A], *memory [B, ...])
Step = Callable[..., Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Actor:
    """Mean action, as the env applies it, of a network's actor behind the normaliser. Parameters stay outside."""

    net: ppo.Networks
    example: Any  # one unbatched observation, or its shapes
    normalised: bool  # a policy has the observations' statistics
    obs_clip: float  # standard deviations, where normalised

    @property
    def seen(self) -> Any:
        """The part of `example` that the actor reads: what `networks.Asymmetric` leaves it."""
        return self.example._replace(critic=()) if self.hides else self.example

    @property
    def hides(self) -> bool:
        """The observation has a part that only the critic reads."""
        return "critic" in getattr(self.example, "_fields", ())

    @property
    def size(self) -> int:
        """Of what the actor reads, its leaves side by side."""
        return sum(leaf.shape[0] for leaf in jax.tree.leaves(self.seen))

    @property
    def memory(self) -> list[np.ndarray]:
        """The leaves of the memory at an episode's start, unbatched; empty where there is none."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.net.initial_carry(()))]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of what `step` takes."""
        return ("obs", *(f"carry_{leaf}" for leaf in range(len(self.memory))))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what `step` gives."""
        return ("action", *(f"next_carry_{leaf}" for leaf in range(len(self.memory))))

    @property
    def tolerances(self) -> dict[int, float]:
        """The largest difference that is rounding, for each of SCALES; a draw is within 5 standard deviations or so."""
        clip = self.obs_clip if self.normalised else np.inf
        return {scale: TOLERANCE * max(1.0, min(5.0 * scale, clip) / REACH) for scale in SCALES}

    def shapes(self) -> Policy:
        """What a checkpoint of this network holds of a policy."""

        def fresh(key: Array) -> Policy:
            obs = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.example)
            return Policy(self.net.init(key, obs), moments(obs) if self.normalised else None)

        return jax.eval_shape(fresh, jax.random.key(0))

    def step(self, policy: Policy, obs: Array, *memory: Array) -> tuple[Array, ...]:
        """`obs` [B, size], leaves of the memory -> the action [B, A] after the env's clip, those leaves after it."""
        leaves, structure = jax.tree.flatten(self.seen)
        ends = np.cumsum([leaf.shape[0] for leaf in leaves])
        seen = jax.tree.unflatten(structure, jnp.split(obs, ends[:-1], axis=-1))
        if self.hides:
            unseen = jax.tree.map(lambda leaf: jnp.zeros((obs.shape[0], *leaf.shape)), self.example.critic)
            seen = seen._replace(critic=unseen)
        carry = jax.tree.unflatten(jax.tree.structure(self.net.initial_carry(())), memory)
        output, carry = self.net.step(policy.params, normalise(policy.obs_stats, seen, self.obs_clip), carry)
        return (jnp.clip(output.mean, -1.0, 1.0), *jax.tree.leaves(carry))

    def compiled(self, policy: Policy, precision: str | None = None) -> Step:
        """`step` of a policy; `precision` "highest" has float32 matmuls in full float32 everywhere."""
        with_policy = jax.jit(self.step)

        def step(*arrays: Any) -> Sequence[Any]:
            with jax.default_matmul_precision(precision):
                return with_policy(policy, *arrays)

        return step

    def spread(self, policy: Policy) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation [size] of what the normaliser has seen; 0 and 1 where there is none."""
        stats = policy.obs_stats
        if stats is None:
            return np.zeros(self.size, np.float32), np.ones(self.size, np.float32)

        def flat(tree: Any) -> np.ndarray:
            return np.concatenate(jax.tree.leaves(tree._replace(critic=()) if self.hides else tree))

        return flat(stats.mean), np.sqrt(flat(stats.var) + EPSILON)


class Traced(NamedTuple):
    """`Actor.step` as a program, with a symbol for the batch and without what the action does not depend on."""

    program: core.ClosedJaxpr  # of (*constants, obs, *memory)
    constants: dict[str, np.ndarray]  # the policy's leaves that it uses, by their path in the checkpoint
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """Of the inputs."""
        avals: list[Any] = self.program.in_avals[len(self.constants) :]
        return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]

    def step(self, *arrays: Any) -> list[Any]:
        """For tracing with inputs of `shapes`; the batch is a symbol, so it does not run as it is."""
        return core.jaxpr_as_fun(self.program)(*self.constants.values(), *arrays)


def trace(actor: Actor, policy: Policy) -> Traced:
    """The program of an actor. A critic with a trunk of its own is not in it, nor are its parameters."""
    (batch,) = export.symbolic_shape("batch")
    rows = [np.zeros(actor.size, np.float32), *actor.memory]
    inputs = [jax.ShapeDtypeStruct((batch, *row.shape), row.dtype) for row in rows]
    with jax.default_matmul_precision("highest"):
        whole = jax.make_jaxpr(actor.step)(policy, *inputs)
    named = list(checkpoint.leaves(policy))
    used_inputs = [False] * len(named) + [True] * len(inputs)
    jaxpr, used = partial_eval.dce_jaxpr(whole.jaxpr, [True] * len(whole.out_avals), used_inputs)
    return Traced(
        program=core.ClosedJaxpr(jaxpr, whole.consts),
        constants={name: np.asarray(leaf) for (name, leaf), use in zip(named, used, strict=False) if use},
        inputs=actor.inputs,
        outputs=actor.outputs,
    )


def differences(step: Step, reference: Step, actor: Actor, policy: Policy) -> dict[int, float]:
    """For each of SCALES, the largest difference between two steps; in batches of COUNT, and one observation at a time.

    With a memory, STEPS observations follow one another and each side keeps its own memory.
    """
    mean, std = actor.spread(policy)
    steps = STEPS if actor.memory else 1
    noise = np.random.default_rng(0).normal(size=(steps, COUNT, actor.size)).astype(np.float32)
    found = {}
    for scale in SCALES:
        obs = mean + np.float32(scale) * std * noise  # [T, B, size]
        parts = [obs, *(obs[:, row : row + 1] for row in range(COUNT // steps))]
        found[scale] = float(np.max([difference(step, reference, part, actor.memory) for part in parts]))
    return found


def difference(step: Step, reference: Step, obs: np.ndarray, memory: Sequence[np.ndarray]) -> float:
    """The same for one sequence `obs` [T, B, size]; NaN if either side says NaN.

    Absolute for actions, which lie in [-1, 1], and for memory within it; relative for memory beyond.
    """
    mine = theirs = [np.broadcast_to(leaf, (obs.shape[1], *leaf.shape)) for leaf in memory]
    found = []
    for now in obs:
        results = [np.asarray(array) for array in step(now, *mine)]
        wanted = [np.asarray(array) for array in reference(now, *theirs)]
        for result, want in zip(results, wanted, strict=True):
            found.append(np.max(np.abs(result - want) / np.maximum(np.abs(want), 1.0)))
        mine, theirs = results[1:], wanted[1:]
    return float(np.max(found))
