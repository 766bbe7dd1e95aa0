"""Physics against what a textbook says, on every engine."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scenes import BLOCK_SPEED, SLIDING_FRICTION, TRUTH, loaded, on_every_engine

GRAVITY = 9.81
ANGLE = 0.3  # rad, where the pendulum starts
NUM_STEPS = 300  # 0.6 s: the block has stopped after 0.51 s, the pendulum has passed its lowest point after 0.36 s


@functools.cache
def trajectory(engine: str) -> dict[str, np.ndarray]:
    """The scene for 0.6 s: the ball thrown along x and spun, the pendulum let go, the block pushed. [T, ...]"""
    world = loaded(TRUTH, engine)
    qpos = jnp.asarray(world.names.qpos0).at[7].set(ANGLE)
    qvel = jnp.zeros(world.names.nv).at[0].set(1.0).at[7].set(BLOCK_SPEED)

    def step(data, _):
        data = world.advance(data, jnp.zeros(0), 1)
        return data, (data.time, data.qpos, data.qvel)

    start = jax.jit(world.place)(qpos, qvel)
    time, qpos, qvel = jax.jit(lambda data: jax.lax.scan(step, data, None, NUM_STEPS)[1])(start)
    return {"time": np.asarray(time), "qpos": np.asarray(qpos), "qvel": np.asarray(qvel)}


@on_every_engine
def test_time_is_the_number_of_steps_times_the_step(engine):
    np.testing.assert_allclose(trajectory(engine)["time"], 0.002 * np.arange(1, NUM_STEPS + 1), rtol=1e-4)


@on_every_engine
def test_a_ball_falls_by_half_g_t_squared(engine):
    path = trajectory(engine)
    t = path["time"]
    # RK4 is exact for a parabola: what is left is float32 (3 m has 2e-7 m of resolution, 300 additions).
    np.testing.assert_allclose(path["qpos"][:, 2], 3.0 - 0.5 * GRAVITY * t**2, atol=2e-4)
    np.testing.assert_allclose(path["qpos"][:, 0], t, atol=1e-4)
    np.testing.assert_allclose(path["qvel"][:, 2], -GRAVITY * t, atol=1e-3)


@on_every_engine
def test_a_pendulum_swings_with_the_period_of_the_elliptic_integral(engine):
    path = trajectory(engine)
    angle, t = path["qpos"][:, 7], path["time"]
    # First passage through 0 is a quarter period: 2 pi sqrt(l/g) (1 + a^2/16 + 11 a^4/3072).
    after = int(np.argmax(angle < 0))
    crossing = np.interp(0.0, [angle[after], angle[after - 1]], [t[after], t[after - 1]])
    period = 2 * np.pi * np.sqrt(0.5 / GRAVITY) * (1 + ANGLE**2 / 16 + 11 * ANGLE**4 / 3072)
    np.testing.assert_allclose(4 * crossing, period, rtol=1e-4)  # interpolation over 2 ms steps


@on_every_engine
def test_a_pendulum_keeps_its_energy(engine):
    path = trajectory(engine)
    angle, speed = path["qpos"][:, 7].astype(float), path["qvel"][:, 6].astype(float)
    energy = 0.5 * (0.5 * speed) ** 2 - GRAVITY * 0.5 * np.cos(angle)
    # RK4's own drift is far below float32's: 300 roundings of 1e-7 of a 5 J scale.
    np.testing.assert_allclose(energy, energy[0], atol=2e-4)


@on_every_engine
def test_a_sliding_block_stops_after_v_squared_over_two_mu_g(engine):
    path = trajectory(engine)
    stopped = path["qpos"][-1, 8]
    np.testing.assert_allclose(stopped, BLOCK_SPEED**2 / (2 * SLIDING_FRICTION * GRAVITY), rtol=0.03)
    # MuJoCo's soft contact creeps a little instead of sticking.
    assert abs(path["qvel"][-1, 7]) < 2e-2
