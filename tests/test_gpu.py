"""What only a CUDA machine can show. Elsewhere these skip."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mjxgym import physics, train

pytestmark = pytest.mark.gpu


def test_auto_means_warp():
    assert physics.resolve("auto") == "warp"


def test_thousands_of_ants_move_as_in_c_mujoco():
    """One control step of 4096 ants in contact, all at once, against C MuJoCo in double precision."""
    found, expected = (_one_step(engine) for engine in ("warp", "c"))
    assert not any(bits.any() for bits in found.overflow)
    for name in ("qpos", "qvel", "sensordata"):
        want, got = getattr(expected, name), getattr(found, name)
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, atol=1e-2 * scale, rtol=0, err_msg=name)
        # The solver stops after 4 iterations: a few worlds stop elsewhere, the bulk agrees closely.
        assert float(np.median(np.abs(got - want))) < 1e-5 * scale, name


def test_ant_runs_within_120_iterations(tmp_path):
    assert train.main(["env=ant", "iterations=120", f"run_dir={tmp_path / 'run'}"]) == 0
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    assert float(rows[-1]["return/recent"]) > 3000  # about 100 iterations reach it, whatever the seed
    assert sum(float(row["nonfinite/total"]) + float(row["overflow/total"]) for row in rows) == 0


def _one_step(engine: str) -> physics.Data:
    world = physics.load("ant/ant.xml", engine, arrays=("sensordata",))
    pos_key, vel_key, ctrl_key = jax.random.split(jax.random.key(0), 3)
    joints = jnp.array([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0])
    rest = jnp.asarray(world.names.qpos0).at[2].set(0.45).at[7:].set(joints)
    qpos = rest + jax.random.uniform(pos_key, (4096, 15), minval=-0.2, maxval=0.2).at[:, :7].set(0.0)
    qvel = jax.random.normal(vel_key, (4096, 14))
    ctrl = jax.random.uniform(ctrl_key, (4096, 8), minval=-1.0)

    def step(qpos, qvel, ctrl):
        return world.advance(world.place(qpos, qvel, ctrl), ctrl, 2)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(step))(qpos, qvel, ctrl))
