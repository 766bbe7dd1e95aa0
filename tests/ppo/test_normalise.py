"""The running moments against numpy in float64 on all samples at once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mjxgym.ppo.normalise import EPSILON, MAX_COUNT, denormalise, moments, normalise, update


class Obs(NamedTuple):
    near: np.ndarray
    far: np.ndarray


def batches(offset, count=6, seed=0):
    rng = np.random.default_rng(seed)
    for index in range(count):
        near = (rng.normal(size=(7, 50, 3)) * (1 + index) + index).astype(np.float32)
        far = (rng.normal(size=(7, 50, 2)) * 3.0 + offset).astype(np.float32)
        yield Obs(near, far), rng.uniform(size=(7, 50)) < 0.8


@pytest.mark.parametrize("offset", [0.0, -1e3, 1e6])
def test_moments_are_those_of_all_kept_samples(offset):
    stats, kept = None, []
    for samples, mask in batches(offset):
        stats = stats or moments(Obs(samples.near[0, 0], samples.far[0, 0]))
        stats = jax.jit(update)(stats, samples, mask)
        kept.append(Obs(samples.near[mask], samples.far[mask]))
    near, far = (np.concatenate(part).astype(np.float64) for part in zip(*kept, strict=True))
    assert stats.count == len(near)
    mean = jax.tree.map(lambda high, low: np.float64(high) + np.float64(low), stats.mean, stats.mean_low)
    np.testing.assert_allclose(mean.near, near.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mean.far, far.mean(0), rtol=0, atol=1e-5)  # of a spread of 3, whatever the offset
    np.testing.assert_allclose(stats.var.near, near.var(0), rtol=1e-4)
    np.testing.assert_allclose(stats.var.far, far.var(0), rtol=1e-4)


def test_masked_samples_may_be_anything():
    stats = moments(jnp.zeros(3))
    samples = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    mask = np.arange(40) % 5 != 0
    poisoned = np.where(mask[:, None], samples, np.nan)
    for clean, poison in zip(
        jax.tree.leaves(update(stats, samples, mask)), jax.tree.leaves(update(stats, poisoned, mask)), strict=True
    ):
        np.testing.assert_array_equal(clean, poison)


def test_a_batch_with_nothing_in_it_changes_nothing():
    stats = update(moments(jnp.zeros(3)), jnp.ones((4, 3)), jnp.ones(4, bool))
    after = update(stats, jnp.full((4, 3), jnp.nan), jnp.zeros(4, bool))
    for old, new in zip(jax.tree.leaves(stats), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_full_count_still_follows_a_change():
    """After MAX_COUNT samples the window is MAX_COUNT: n new ones move the mean by the share n / (MAX_COUNT + n)."""
    full = moments(jnp.zeros(1)).replace(count=jnp.asarray(MAX_COUNT, jnp.float32), mean=jnp.ones(1))
    stats, step = full, jax.jit(update)
    for _ in range(100):
        stats = step(stats, jnp.full((1000, 1), 3.0), jnp.ones(1000, bool))
    moved = np.float64(stats.mean[0]) + np.float64(stats.mean_low[0]) - 1.0
    np.testing.assert_allclose(moved, 2.0 * 100 * 1000 / MAX_COUNT, rtol=0.01)
    assert stats.count == MAX_COUNT


def test_normalise_scales_and_clips():
    stats = moments(jnp.zeros(2)).replace(mean=jnp.array([1.0, 2.0]), var=jnp.array([4.0, 9.0]))
    samples = jnp.array([[3.0, 2.0], [1e6, -1e6]])
    expected = [[2.0 / np.sqrt(4.0 + EPSILON), 0.0], [5.0, -5.0]]
    np.testing.assert_allclose(normalise(stats, samples, 5.0), expected, rtol=1e-6)


def test_denormalise_undoes_normalise():
    stats = moments(jnp.zeros(())).replace(mean=jnp.asarray(3.0), var=jnp.asarray(16.0))
    values = jnp.linspace(-10.0, 20.0, 12).reshape(3, 4)
    np.testing.assert_allclose(denormalise(stats, normalise(stats, values, 5.0)), values, rtol=1e-5, atol=1e-5)


def test_none_means_not_normalised():
    values = jnp.arange(6.0).reshape(2, 3)
    assert update(None, values, jnp.ones(2, bool)) is None
    np.testing.assert_array_equal(normalise(None, values, 1.0), values)
    np.testing.assert_array_equal(denormalise(None, values), values)
