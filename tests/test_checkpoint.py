"""A state comes back bit for bit, or not at all and with a reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from mjxgym import checkpoint
from mjxgym.strict import UserError
from mjxgym.tree import Record


class Small(Record):
    params: dict[str, Any]
    words: Array  # uint32
    key: Array
    keys: Array  # [3]
    none: Array  # [3, 0]
    flag: Array
    count: Array


class Part(NamedTuple):
    params: Any


def state(seed: int = 0) -> Small:
    key = jax.random.key(seed)
    return Small(
        params={"dense/0": {"kernel": jax.random.normal(key, (4, 3))}, "bias": jnp.array([jnp.nan, -0.0, jnp.inf])},
        words=jax.random.bits(key, (5,), jnp.uint32),
        key=jax.random.key(3, impl="rbg"),
        keys=jax.random.split(key, 3),
        none=jnp.zeros((3, 0)),
        flag=jnp.array([True, False]),
        count=jnp.int32(7),
    )


def target() -> Small:
    return jax.eval_shape(state)


def assert_same_bits(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert checkpoint.raw(a).tobytes() == checkpoint.raw(b).tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    checkpoint.save(tmp_path / "checkpoints" / "last", state(), "hop", {"iteration": 7})
    return tmp_path / "checkpoints" / "last"


def test_a_state_comes_back_bit_for_bit(path: Path):
    restored, note = checkpoint.restore(path, target(), "hop")
    assert_same_bits(restored, state())
    assert note == {"iteration": 7}


def test_a_fetched_state_survives_donation(path: Path):
    live = state()
    held = checkpoint.fetch(live)
    jax.jit(lambda s: jax.tree.map(jnp.copy, s), donate_argnums=0)(live)
    checkpoint.save(path, held, "hop", {})
    assert_same_bits(checkpoint.restore(path, target(), "hop")[0], state())


def test_a_part_can_be_restored(path: Path):
    part, _ = checkpoint.restore(path, Part(target().params), "hop")
    assert_same_bits(part, Part(state().params))


def test_saving_replaces_and_leaves_nothing_else(path: Path):
    checkpoint.save(path, state(1), "hop", {"iteration": 8})
    restored, note = checkpoint.restore(path, target(), "hop")
    assert_same_bits(restored, state(1))
    assert note == {"iteration": 8}
    assert [entry.name for entry in path.parent.iterdir()] == ["last"]


def test_a_failed_save_keeps_the_one_before(path: Path):
    path.with_name("last.new").write_text("in the way")
    with pytest.raises(FileExistsError):
        checkpoint.save(path, state(1), "hop", {})
    assert_same_bits(checkpoint.restore(path, target(), "hop")[0], state())


def test_dying_between_the_renames_loses_nothing(path: Path):
    path.rename(path.with_name("last.old"))
    assert_same_bits(checkpoint.restore(path, target(), "hop")[0], state())


def test_another_task_is_refused(path: Path):
    with pytest.raises(UserError, match="checkpoint of env=hop, not of env=walk"):
        checkpoint.restore(path, target(), "walk")


def test_another_network_is_refused_leaf_by_leaf_in_one_screen(path: Path):
    other = target().replace(params={f"layer_{i}": jax.ShapeDtypeStruct((i,), jnp.float32) for i in range(50)})
    other = other.replace(count=jax.ShapeDtypeStruct((2,), jnp.int32), key=jax.eval_shape(lambda: jax.random.key(0)))
    with pytest.raises(UserError) as caught:
        checkpoint.restore(path, other, "hop")
    said = str(caught.value)
    assert str(path) in said
    assert "env=hop" in said
    assert "params.layer_0: expected float32[0], found nothing" in said
    assert len(said.splitlines()) <= 15
    with pytest.raises(UserError, match=r"count: expected int32\[2\], found int32\[\]"):
        checkpoint.restore(path, target().replace(count=jax.ShapeDtypeStruct((2,), jnp.int32)), "hop")


def test_another_kind_of_key_is_refused(path: Path):
    with pytest.raises(UserError, match=r"key: expected key<fry>\[\], found key<rbg>\[\]"):
        checkpoint.restore(path, target().replace(key=jax.eval_shape(lambda: jax.random.key(0))), "hop")


def damage_page(path: Path) -> None:
    (path / checkpoint.ABOUT).write_text('{"task": "hop", "lea')


def damage_page_shape(path: Path) -> None:
    (path / checkpoint.ABOUT).write_text("[]")


def damage_arrays(path: Path) -> None:
    for file in (path / checkpoint.ARRAYS).rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def damage_bits(path: Path) -> None:
    page = json.loads((path / checkpoint.ABOUT).read_text())
    page["leaves"]["count"]["crc32"] ^= 1  # as if a bit of the array had flipped
    (path / checkpoint.ABOUT).write_text(json.dumps(page))


def remove_arrays(path: Path) -> None:
    shutil.rmtree(path / checkpoint.ARRAYS)


@pytest.mark.parametrize("harm", [damage_page, damage_page_shape, damage_arrays, damage_bits, remove_arrays])
def test_damage_is_one_sentence(path: Path, harm: Any):
    harm(path)
    with pytest.raises(UserError, match="is damaged or incomplete") as caught:
        checkpoint.restore(path, target(), "hop")
    assert "\n" not in str(caught.value)


def test_a_missing_checkpoint_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match="there is no checkpoint at"):
        checkpoint.restore(tmp_path / "last", target(), "hop")


def test_leaves_are_named_by_their_place():
    names = [name for name, _ in checkpoint.leaves(state())]
    assert names[:3] == ["params.bias", "params.dense/0.kernel", "words"]
    assert all(isinstance(leaf, np.ndarray) for leaf in map(checkpoint.raw, jax.tree.leaves(state())))
