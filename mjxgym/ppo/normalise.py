"""Running mean and variance of observations and values, and the map to unit scale and back.

Everything is mapped over the tree of an observation, so an array and a NamedTuple of arrays are one case.
`None` in place of `Moments` means "not normalised": every function passes its input through.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from mjxgym.tree import Record

EPSILON = 1e-5  # added to the variance, rl_games running_mean_std.py
VALUE_CLIP = 5.0  # standard deviations a denormalised value may lie from the mean, ibid.
# float32 holds a count exactly to 2^24 batches of any one size. Past this many samples the weight of a new sample
# stays 1 / MAX_COUNT: the statistics turn from a mean over all time into one that forgets over 2^30 samples.
MAX_COUNT = 2.0**30


class Moments(Record):
    """Mean and biased variance of the samples so far; the trees have the shapes of one unbatched sample."""

    count: Array  # [] float32, samples, at most MAX_COUNT
    mean: Any  # float32
    mean_low: Any  # float32, what `mean` lost to rounding: mean + mean_low is good to 48 bits
    var: Any  # float32; 1 before the first sample


def moments(example: Any) -> Moments:
    """No samples yet, so `normalise` is the identity up to EPSILON and the clip. `example` is one unbatched sample."""
    return Moments(
        count=jnp.zeros((), jnp.float32),
        mean=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), example),
        mean_low=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), example),
        var=jax.tree.map(lambda leaf: jnp.ones(leaf.shape, jnp.float32), example),
    )


def update(stats: Moments | None, samples: Any, mask: Array) -> Moments | None:
    """Merge a batch (Chan, Golub, LeVeque 1979). `samples` [*mask.shape, ...], `mask` [...] bool: what may enter.

    The batch is measured from the running mean, and its sums are corrected by their own residual, so an offset of 1e6
    with unit spread costs no digits.
    """
    if stats is None:
        return None
    batch = jnp.sum(mask, dtype=jnp.float32)
    weight = batch / jnp.maximum(stats.count + batch, 1.0)

    def merge(mean: Array, mean_low: Array, var: Array, sample: Array) -> tuple[Array, Array, Array]:
        keep = mask.reshape(mask.shape + (1,) * mean.ndim)

        def average(value: Array) -> Array:
            return jnp.sum(jnp.where(keep, value, 0.0), axis=tuple(range(mask.ndim))) / jnp.maximum(batch, 1.0)

        offset = (sample - wide(mean, sample)) - wide(mean_low, sample)
        # Cut to 21 bits so that it is one number wherever the compiler uses it: a fused multiply-add would keep more
        # digits of it here than there are in `mean` below, and `error` would miss the difference.
        shift = jax.lax.reduce_precision(average(offset), exponent_bits=8, mantissa_bits=20)
        residual = offset - wide(shift, sample)
        error = average(residual)  # what the cut took from `shift`
        batch_var = jnp.maximum(average(jnp.square(residual)) - jnp.square(error), 0.0)
        between = weight * (1.0 - weight) * jnp.square(shift + error)
        var = (1.0 - weight) * var + weight * batch_var + between
        mean, lost = two_sum(mean, weight * shift)
        mean, mean_low = two_sum(mean, lost + mean_low + weight * error)
        return mean, mean_low, var

    merged = jax.tree.map(merge, stats.mean, stats.mean_low, stats.var, samples)
    mean, mean_low, var = jax.tree.transpose(jax.tree.structure(stats.mean), jax.tree.structure((0, 0, 0)), merged)
    return Moments(jnp.minimum(stats.count + batch, MAX_COUNT), mean, mean_low, var)


def normalise(stats: Moments | None, samples: Any, clip: float) -> Any:
    """Samples `[..., *shape]` to zero mean and unit variance, cut at +-clip standard deviations."""
    if stats is None:
        return samples

    def leaf(sample: Array, mean: Array, mean_low: Array, var: Array) -> Array:
        offset = (sample - wide(mean, sample)) - wide(mean_low, sample)
        return jnp.clip(offset * wide(jax.lax.rsqrt(var + EPSILON), sample), -clip, clip)

    return jax.tree.map(leaf, samples, stats.mean, stats.mean_low, stats.var)


def denormalise(stats: Moments | None, values: Array, clip: float = VALUE_CLIP) -> Array:
    """The way back for one array, cut at +-clip standard deviations first."""
    if stats is None:
        return values
    scale = wide(jnp.sqrt(stats.var + EPSILON), values)
    return jnp.clip(values, -clip, clip) * scale + wide(stats.mean + stats.mean_low, values)


def wide(part: Array, whole: Array) -> Array:
    """`part` with leading axes of length 1, as many as `whole` has more."""
    return part.reshape((1,) * (whole.ndim - part.ndim) + part.shape)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b as its float32 rounding and what that lost, exactly (Knuth, TAOCP 2, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
