"""Names, limits, frames, loading and dynamics: what is read off a model once."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scenes import CART, compiled, loaded

from mjxgym import physics
from mjxgym.physics import dynamics, frames, limits

FREE_AND_HINGE = """
<mujoco><option timestep="0.01"/><statistic extent="2"/>
  <worldbody><body name="base" pos="0 0 1"><freejoint/><geom size="0.1"/>
    <body name="arm" pos="0.2 0 0"><joint name="elbow" axis="0 1 0" range="-60 60"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02"/></body></body></worldbody>
</mujoco>
"""


def test_names_are_addresses():
    names = loaded(CART, "c").names
    joints = names.joints("slide")
    assert joints.qpos.tolist() == [0]
    assert np.isinf(joints.lower).all()
    assert np.isinf(joints.upper).all()
    assert names.actuators("lagging", "push").tolist() == [1, 0]
    assert names.sensor("speed", "where").tolist() == [3, 4, 5, 0, 1, 2]
    assert (names.body("cart"), names.body("load"), names.root_of(2)) == (1, 2, 1)
    assert names.site("mount") == 1


@pytest.mark.parametrize("kind", ["joints", "actuators", "body", "site", "sensor"])
def test_a_wrong_name_is_answered_with_those_there_are(kind):
    names = loaded(CART, "c").names
    with pytest.raises(KeyError, match=r"has no .* 'puhs'; it has"):
        getattr(names, kind)("puhs")


def test_a_free_joint_is_no_scalar_joint():
    model = compiled(FREE_AND_HINGE.replace("<freejoint/>", "<freejoint name='free'/>"))
    with pytest.raises(ValueError, match="'free' is not a hinge or slide"):
        physics.load(model, "c").names.joints("free")


def test_limits_come_from_step_length_and_range():
    bounds = limits.of_model(compiled(FREE_AND_HINGE))
    np.testing.assert_allclose(bounds.qvel, [200, 200, 200, 100, 100, 100, 100])  # 2 m or 1 rad in 0.01 s
    assert np.isinf(bounds.qpos_upper[:7]).all()
    np.testing.assert_allclose(bounds.qpos_upper[7], np.pi / 3 + np.pi, rtol=1e-6)


@pytest.mark.parametrize(
    ("qpos", "qvel", "nonfinite", "diverged"),
    [
        (0.0, 99.0, False, False),
        (0.0, -101.0, False, True),
        (4.5, 0.0, False, True),
        (np.nan, 0.0, True, False),
        (0.0, np.inf, True, False),
    ],
)
def test_a_state_is_sound_diverged_or_not_finite(qpos, qvel, nonfinite, diverged):
    world = physics.load(compiled(FREE_AND_HINGE), "c")
    data = world.place(jnp.asarray(world.names.qpos0), jnp.zeros(7))
    data = data.replace(qpos=data.qpos.at[7].set(qpos), qvel=data.qvel.at[6].set(qvel))
    assert tuple(map(bool, limits.check(world.limits, data))) == (nonfinite, diverged)


def test_rotations_agree_with_mujoco():
    random = np.random.default_rng(0)
    for _ in range(5):
        quat, vector, turned = random.normal(size=4), random.normal(size=3), np.zeros(3)
        quat /= np.linalg.norm(quat)
        mujoco.mju_rotVecQuat(turned, vector, quat)
        np.testing.assert_allclose(frames.rotate(jnp.asarray(quat), jnp.asarray(vector)), turned, atol=1e-6)
        back = frames.rotate_inverse(jnp.asarray(quat), jnp.asarray(turned))
        np.testing.assert_allclose(back, vector, atol=1e-6)


def test_euler_angles_rebuild_the_rotation():
    random = np.random.default_rng(1)
    for _ in range(5):
        roll, pitch, yaw = random.uniform([-3, -1.5, -3], [3, 1.5, 3])
        quat = np.array([1.0, 0, 0, 0])
        for axis, angle in ((2, yaw), (1, pitch), (0, roll)):  # fixed axes x, y, z = body axes z, y, x
            turn = np.zeros(4)
            mujoco.mju_axisAngle2Quat(turn, np.eye(3)[axis], angle)
            product = np.zeros(4)
            mujoco.mju_mulQuat(product, quat, turn)
            quat = product
        np.testing.assert_allclose(frames.euler_xyz(jnp.asarray(quat)), [roll, pitch, yaw], atol=1e-5)


def test_wrapping_keeps_the_angle_and_bounds_it():
    angles = np.linspace(-20.0, 20.0, 101)
    wrapped = np.asarray(frames.wrap(jnp.asarray(angles)))
    assert np.all((wrapped >= -np.pi - 1e-5) & (wrapped <= np.pi + 1e-5))
    np.testing.assert_allclose(np.exp(1j * wrapped), np.exp(1j * angles), atol=1e-5)


def test_gravity_points_down_and_tips_with_the_body():
    upright, on_its_side = jnp.array([1.0, 0, 0, 0]), jnp.array([np.sqrt(0.5), np.sqrt(0.5), 0, 0])
    np.testing.assert_allclose(frames.gravity_in_body(upright), [0, 0, -1], atol=1e-7)
    np.testing.assert_allclose(frames.gravity_in_body(on_its_side), [0, -1, 0], atol=1e-6)


def test_body_velocity_is_mujocos_object_velocity():
    model = compiled(FREE_AND_HINGE)
    random = np.random.default_rng(2)
    qpos, qvel = np.array(model.qpos0), random.normal(size=model.nv)
    qpos[7] = 0.4
    world = physics.load(model, "c")
    data = world.place(jnp.asarray(qpos), jnp.asarray(qvel))
    reference = mujoco.MjData(model)
    reference.qpos, reference.qvel = qpos, qvel
    mujoco.mj_forward(model, reference)
    expected = np.zeros(6)
    mujoco.mj_objectVelocity(model, reference, mujoco.mjtObj.mjOBJ_XBODY, 2, expected, 0)
    linear, angular = frames.body_velocity(data, 2, world.names.root_of(2))
    np.testing.assert_allclose(np.concatenate([angular, linear]), expected, atol=1e-5)


def test_jacobian_and_mass_matrix_are_mujocos():
    model = compiled(FREE_AND_HINGE)
    random = np.random.default_rng(3)
    qpos = np.array(model.qpos0)
    qpos[3:7] = random.normal(size=4)
    qpos[3:7] /= np.linalg.norm(qpos[3:7])
    qpos[7], point = 0.4, np.array([0.3, 0.1, 1.2])
    reference = mujoco.MjData(model)
    reference.qpos = qpos
    mujoco.mj_forward(model, reference)
    mass, linear, angular = np.zeros((7, 7)), np.zeros((3, 7)), np.zeros((3, 7))
    mujoco.mj_fullM(model, reference, mass)
    mujoco.mj_jac(model, reference, linear, angular, point, 2)
    found = dynamics.of_model(model)
    np.testing.assert_allclose(jax.jit(found.mass_matrix)(jnp.asarray(qpos)), mass, atol=1e-5)
    jacobian = jax.jit(found.jacobian, static_argnums=1)
    got_linear, got_angular = jacobian(jnp.asarray(qpos), 2, jnp.asarray(point))
    np.testing.assert_allclose(got_linear, linear, atol=1e-5)
    np.testing.assert_allclose(got_angular, angular, atol=1e-5)


def test_auto_means_c_on_a_cpu():
    if jax.default_backend() != "cpu":
        pytest.skip("this machine has an accelerator")
    assert physics.resolve("auto") == "c"


@pytest.mark.parametrize(("given", "nearest"), [("wrap", "warp"), ("C", "c"), ("physx", "one of auto, warp, jax, c")])
def test_an_unknown_engine_is_answered_with_the_known(given, nearest):
    with pytest.raises(RuntimeError, match=nearest):
        physics.resolve(given)


def test_a_missing_model_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file at .*models.*gone\.xml and gone\.xml"):
        physics.load("gone.xml", "c")


@pytest.mark.parametrize(
    "text", ["", "<mujoco", "<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>", "not a model"]
)
def test_a_broken_model_is_one_sentence(text, tmp_path):
    path = tmp_path / "broken.xml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"broken\.xml is not a model MuJoCo can compile") as caught:
        physics.load(path, "c")
    assert "\n" not in str(caught.value)


def test_a_model_with_what_mjx_lacks_is_refused_by_name():
    xml = CART.replace("<option ", "<option integrator='implicit' ")
    with pytest.raises(NotImplementedError, match="engine=jax lacks"):
        physics.load(compiled(xml), "jax")


def test_loading_leaves_the_callers_model_alone():
    model = compiled(CART)
    before = int(model.opt.disableflags)
    physics.load(model, "c")
    assert int(model.opt.disableflags) == before


def test_arrays_that_were_not_asked_for_are_none():
    for engine in ("c", "jax", "warp"):
        world = physics.load(compiled(CART), engine, arrays=("xpos",))
        data = jax.jit(world.place)(jnp.array([0.5]), jnp.zeros(1))
        np.testing.assert_allclose(data.xpos[1, 0], 0.5)
        assert data.sensordata is None
        assert data.cvel is None


def test_an_unknown_array_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"'sensor_data' is not a derived array.*did you mean sensordata\?"):
        physics.load(compiled(CART), "c", arrays=("sensor_data",))
