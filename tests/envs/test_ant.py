"""The ant against plain MuJoCo and numpy, written independently of `envs/ant.py`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from mjxgym import physics
from mjxgym.env import State
from mjxgym.envs import ant
from mjxgym.physics import read_model

DT = 0.0166
AT = {  # where IsaacGymEnvs' layout has each block
    "height": slice(0, 1),
    "linvel": slice(1, 4),
    "angvel": slice(4, 7),
    "yaw": slice(7, 8),
    "roll": slice(8, 9),
    "target_angle": slice(9, 10),
    "up": slice(10, 11),
    "heading": slice(11, 12),
    "joint_pos": slice(12, 20),
    "joint_vel": slice(20, 28),
    "foot_wrench": slice(28, 52),
    "last_action": slice(52, 60),
}


@functools.cache
def load() -> ant.Ant:
    return ant.make(ant.Config(), engine="c")


@functools.cache
def compiled() -> Any:
    return jax.jit(load().step)


@functools.cache
def start() -> State:
    return load().reset(jax.random.key(0))


def pose(height: float = 0.6, quat: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0), joints: Any = None) -> np.ndarray:
    """qpos with the joints in the middle of their ranges unless given."""
    joints = np.array([0, 1, 0, -1, 0, -1, 0, 1]) if joints is None else joints
    return np.concatenate([[0.0, 0.0, height], np.array(quat) / np.linalg.norm(quat), joints])


def put(qpos: Any, qvel: Any) -> State:
    data = load().physics.place(jnp.asarray(qpos, jnp.float32), jnp.asarray(qvel, jnp.float32))
    return start().replace(data=data)


def wild(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A random pose, low enough for the feet to touch, with velocities, and an action."""
    rng = np.random.default_rng(seed)
    joints = np.array([0, 1, 0, -1, 0, -1, 0, 1]) + rng.uniform(-0.4, 0.4, 8)
    qpos = pose(rng.uniform(0.35, 0.6), tuple(rng.normal([1.5, 0, 0, 0], 0.4)), joints)
    qpos[:2] = rng.uniform(-20, 20, 2)
    return qpos, rng.normal(0.0, 1.0, 14), rng.uniform(-1, 1, 8)


@functools.cache
def truth(seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """qpos before and after a control step in plain MuJoCo, and what the observation should be."""
    qpos, qvel, action = wild(seed)
    model = read_model("ant/ant.xml")
    data = mujoco.MjData(model)
    data.qpos, data.qvel = qpos.astype(np.float32), qvel.astype(np.float32)
    mujoco.mj_forward(model, data)
    data.ctrl = action.astype(np.float32)
    mujoco.mj_step(model, data, nstep=2)
    wrench = np.concatenate([data.sensor(f"{kind}_{leg}").data for leg in (1, 2, 3, 4) for kind in ("force", "torque")])

    mujoco.mj_forward(model, data)  # body frames of the final state
    torso, velocity = data.body("torso"), np.zeros(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, torso.id, velocity, 1)  # angular, linear; local
    matrix = torso.xmat.reshape(3, 3)
    to_target = np.array([1000.0, 0.0]) - torso.xpos[:2]
    yaw, roll = np.arctan2(matrix[1, 0], matrix[0, 0]), np.arctan2(matrix[2, 1], matrix[2, 2])
    names = [f"{kind}_{leg}" for leg in (1, 2, 3, 4) for kind in ("hip", "ankle")]
    lower, upper = np.array([model.joint(name).range for name in names]).T
    angle = np.array([data.joint(name).qpos[0] for name in names])
    obs = {
        "height": torso.xpos[2:],
        "linvel": velocity[3:],
        "angvel": velocity[:3],
        "yaw": np.array([yaw]),
        "roll": np.array([roll]),
        "target_angle": np.array([np.angle(np.exp(1j * (np.arctan2(*to_target[::-1]) - yaw)))]),
        "up": matrix[2:, 2],
        "heading": np.array([matrix[:2, 0] @ to_target / np.linalg.norm(to_target)]),
        "joint_pos": (angle - (upper + lower) / 2) / ((upper - lower) / 2),
        "joint_vel": 0.2 * np.array([data.joint(name).qvel[0] for name in names]),
        "foot_wrench": 0.1 * wrench,
        "last_action": action,
    }
    return qpos, data.qpos.copy(), obs


@pytest.mark.parametrize("block", AT)
def test_observation_against_plain_mujoco(block):
    for seed in range(4):
        qpos, qvel, action = wild(seed)
        state = compiled()(put(qpos, qvel), jnp.asarray(action, jnp.float32))
        expected = truth(seed)[2][block]
        atol = 1e-5 + 2e-4 * np.max(np.abs(expected))
        np.testing.assert_allclose(state.obs[AT[block]], expected, rtol=2e-4, atol=atol)


def test_the_feet_were_loaded_in_that_comparison():
    assert max(np.max(np.abs(truth(seed)[2]["foot_wrench"])) for seed in range(4)) > 1.0


def test_layout_is_named():
    ends = np.cumsum([size for _, size in load().obs_names])
    assert ends.tolist() == [at.stop for at in AT.values()]
    assert load().obs_size == 60


def test_progress_is_forward_displacement_over_time():
    qpos, qvel = pose(0.8), np.zeros(14)
    qvel[0], qvel[1] = 1.7, 5.0
    state = compiled()(put(qpos, qvel), jnp.zeros(8))
    assert float(state.metrics.progress) == pytest.approx(float(state.data.qpos[0]) / DT, abs=1e-3)
    assert float(state.metrics.progress) == pytest.approx(1.7, abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_reward_terms_by_hand(seed):
    before, after, obs = truth(seed)
    qpos, qvel, action = wild(seed)
    state = compiled()(put(qpos, qvel), jnp.asarray(action, jnp.float32))
    target = np.array([1000.0, 0.0])
    potential = [-np.linalg.norm(target - position[:2]) / DT for position in (before, after)]
    heading, up = obs["heading"][0], obs["up"][0]
    expected = {
        "progress": potential[1] - potential[0],
        "alive": 1.0,
        "upright": float(up > 0.93),
        "heading": 1.0 if heading > 0.8 else heading / 0.8,
        "effort": np.sum(action**2),
        "energy": np.sum(np.abs(action * obs["joint_vel"])),
        "at_limit": float(np.sum(obs["joint_pos"] > 0.99)),
        "death": 0.0,
    }
    if after[2] < 0.31:
        expected = dict.fromkeys(expected, 0.0) | {"death": 1.0}
    for name, value in expected.items():
        assert float(getattr(state.metrics, name)) == pytest.approx(value, rel=1e-3, abs=1e-3), name
    if not state.terminated:
        weights = [1.0, 0.5, 0.1, 0.5, -0.005, -0.05, -0.1, 0.0]
        assert float(state.reward) == pytest.approx(np.dot(weights, list(expected.values())), abs=5e-3)


def test_death_replaces_the_reward_by_minus_two():
    qvel = np.zeros(14)
    qvel[0] = 3.0
    state = compiled()(put(pose(0.30, quat=(0.0, 1.0, 0.0, 0.0)), qvel), jnp.ones(8))  # on its back
    assert state.reward == -2.0
    assert state.terminated
    assert not state.truncated
    assert state.metrics == ant.Reward(*(0.0,) * 7, death=1.0)


def test_only_the_upper_limit_costs():
    for joints, count in ((load().upper, 8), (load().lower, 0)):
        data = put(pose(joints=joints), np.zeros(14)).data
        terms = load().reward_terms(start().data, data, load().observe(data, jnp.zeros(8)), jnp.array(False))
        assert float(terms.at_limit) == count


def test_motors_give_fifteen_newton_metres_each_to_its_own_joint():
    action = jnp.linspace(-1.0, 1.0, 8)
    talkative = load().replace(physics=physics.load("ant/ant.xml", "c"))
    state = jax.jit(talkative.step)(put(pose(2.0), np.zeros(14)), action)
    np.testing.assert_allclose(state.data.qfrc_actuator[6:], 15.0 * action, rtol=1e-5)
    np.testing.assert_array_equal(state.data.qfrc_actuator[:6], 0.0)


@pytest.mark.parametrize("angle", [-0.1, 0.1, 3.0, -3.0])
@pytest.mark.parametrize(("axis", "name"), [((0, 0, 1), "yaw"), ((1, 0, 0), "roll")])
def test_angles_are_wrapped_or_as_published(angle, axis, name):
    published = load().replace(config=ant.Config(wrap_angles=False))
    quat = (np.cos(angle / 2), *(np.sin(angle / 2) * np.array(axis)))
    data = put(pose(2.0, quat), np.zeros(14)).data
    wrapped, raw = load().observe(data, jnp.zeros(8)), published.observe(data, jnp.zeros(8))
    assert float(getattr(wrapped, name)) == pytest.approx(angle, abs=1e-5)
    assert float(getattr(raw, name)) == pytest.approx(angle % (2 * np.pi), abs=1e-5)
    assert float(raw.target_angle) == pytest.approx(-float(raw.yaw), abs=1e-5)  # the target lies along x
    assert -np.pi <= float(wrapped.target_angle) <= np.pi


def test_starts_are_the_published_ones():
    states = jax.jit(jax.vmap(load().reset))(jax.random.split(jax.random.key(1), 300))
    root, joints = np.asarray(states.data.qpos[:, :7]), np.asarray(states.data.qpos[:, 7:])
    assert np.all(root == np.array([0, 0, np.float32(0.44), 1, 0, 0, 0]))
    nearest = np.array([0, np.pi / 6, 0, -np.pi / 6, 0, -np.pi / 6, 0, np.pi / 6])
    assert np.all(np.abs(joints - nearest) < 0.2 + 1e-6)
    assert np.max(np.abs(joints - nearest)) > 0.19
    assert np.all(np.abs(joints[:, 1::2]) > np.pi / 6 - 1e-6)  # ankles stay within their range
    assert np.all(states.data.qvel[:, :6] == 0)
    speed = np.abs(np.asarray(states.data.qvel[:, 6:]))
    assert 0.095 < np.max(speed) <= 0.1


def test_it_stands_without_torque():
    state = start()
    for _ in range(60):
        state = compiled()(state, jnp.zeros(8))
    assert not state.terminated
    assert 0.31 < state.obs[0] < 0.6
    assert state.obs[10] > 0.95


def test_a_model_without_the_names_is_refused(tmp_path):
    path = tmp_path / "other.xml"
    path.write_text('<mujoco><worldbody><body><joint name="hip_9"/><geom size="1"/></body></worldbody></mujoco>')
    with pytest.raises(KeyError, match="hip_1"):
        ant.make(ant.Config(model=str(path)), engine="c")
