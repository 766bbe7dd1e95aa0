"""What an exported policy says about itself."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from gru import Recurrent
from probes import Sight

from mjxgym import envs, metadata
from mjxgym.actor import Actor
from mjxgym.config import task_config

MODEL = mujoco.MjModel.from_xml_string("""
<mujoco>
  <worldbody>
    <body>
      <freejoint/>
      <geom size="0.1"/>
      <body>
        <joint name="knee" type="hinge" range="-90 45"/>
        <geom size="0.1"/>
        <body><joint name="rail" type="slide"/><geom size="0.1"/></body>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="cord"><joint joint="knee" coef="1"/><joint joint="rail" coef="2"/></fixed></tendon>
  <actuator>
    <position name="bend" joint="knee" kp="20" kv="0.5" ctrlrange="-1 0.5" forcerange="-8 8" gear="3"/>
    <motor name="pull" tendon="cord"/>
  </actuator>
</mujoco>
""")


def test_an_actuator_is_in_mujocos_words():
    bend, pull = (metadata.actuator(MODEL, row) for row in range(2))
    assert (bend["name"], bend["transmission"], bend["target"], bend["gear"][0]) == ("bend", "joint", "knee", 3.0)
    assert (bend["gaintype"], bend["gainprm"][:1]) == ("fixed", [20.0])
    assert (bend["biastype"], bend["biasprm"][:3]) == ("affine", [0.0, -20.0, -0.5])
    assert (bend["ctrlrange"], bend["forcerange"], bend["dyntype"]) == ([-1.0, 0.5], [-8.0, 8.0], "none")
    assert (pull["transmission"], pull["target"], pull["biastype"]) == ("tendon", "cord", "none")
    assert (pull["ctrlrange"], pull["forcerange"]) == (None, None)
    json.dumps([bend, pull])


def test_a_joint_is_found_by_its_address():
    knee, rail = (metadata.joint(MODEL, address) for address in (7, 8))
    assert knee == {
        "name": "knee", "type": "hinge", "range": pytest.approx([-np.pi / 2, np.pi / 4]), "qpos": 7, "qvel": 6,
    }  # fmt: skip
    assert (rail["name"], rail["type"], rail["range"]) == ("rail", "slide", None)


class Told(NamedTuple):
    ctrl: jax.Array


class Now(NamedTuple):
    data: Any


class Robot:
    """Only what the actuators are told; a pytree without leaves."""

    action_size = 3

    def __init__(self, told: Any) -> None:
        self.told = told

    def reset(self, key: jax.Array) -> Now:
        return Now(jax.random.uniform(key, (3,)))

    def step(self, state: Now, action: jax.Array) -> Now:
        return Now(Told(self.told(state.data, jnp.clip(action, -1.0, 1.0))))


jax.tree_util.register_static(Robot)
POSE, SCALE = jnp.array([0.1, -0.2, 0.3]), jnp.array([0.5, 1.0, 2.0])


def test_scale_and_offset_are_found_by_trying():
    scale, offset = metadata.control(Robot(lambda state, action: POSE + SCALE * action)) or ([], [])
    assert scale == pytest.approx([0.5, 1.0, 2.0])
    assert offset == pytest.approx([0.1, -0.2, 0.3])
    about = metadata.action(Robot(lambda state, action: action))
    assert (about["scale"], about["offset"]) == ([1.0] * 3, [0.0] * 3)


@pytest.mark.parametrize(
    "told",
    [
        lambda state, action: jnp.square(action),
        lambda state, action: action[::-1],
        lambda state, action: state + action,
        lambda state, action: jnp.concatenate([action, action]),
    ],
)
def test_what_is_no_scale_and_offset_is_not_called_one(told):
    about = metadata.action(Robot(told))
    assert (about["scale"], about["offset"]) == (None, None)


def test_terms_are_the_envs_names_or_the_fields_that_the_actor_reads():
    example = Sight(jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.float32))
    actor = Actor(Recurrent(4, 1), example, False, 5.0)

    class Named:
        obs_names = (("a", 1), ("b", 1))

    class Misnamed:
        obs_names = (("a", 1), ("b", 4))

    assert metadata.observation(Named(), actor)["terms"] == [{"name": "a", "size": 1}, {"name": "b", "size": 1}]
    for env in (Misnamed(), object()):
        about = metadata.observation(env, actor)
        assert about["terms"] == [{"name": "policy", "size": 2}]
        assert (about["size"], about["normalised"], about["clip"]) == (2, False, None)


def test_a_memory_has_names_shapes_and_a_start():
    actor = Actor(Recurrent(4, 1), jax.ShapeDtypeStruct((2,), jnp.float32), True, 5.0)
    about = metadata.signature(actor, 1)
    assert about["inputs"] == [{"name": "obs", "shape": ["batch", 2]}, {"name": "carry_0", "shape": ["batch", 4]}]
    assert [one["name"] for one in about["outputs"]] == ["action", "next_carry_0"]
    assert about["carry"] == [{"input": "carry_0", "output": "next_carry_0", "initial": [0.0] * 4}]


def test_a_cartpole_is_described():
    saved = task_config("cartpole")
    env = envs.task("cartpole").make(saved.env, "c")
    obs = jax.eval_shape(env.reset, jax.random.key(0)).obs
    about = metadata.describe(saved, env, Actor(Recurrent(4, 1), obs, True, 5.0))
    assert json.loads(json.dumps(about)) == about
    assert (about["task"], about["seed"], about["substeps"], about["sim_dt"]) == ("cartpole", 42, 2, 0.0083)
    assert about["control_dt"] == pytest.approx(0.0166)
    assert [one["name"] for one in about["joints"]] == ["slide", "hinge"]
    assert [(one["name"], one["target"], one["gear"][0]) for one in about["actuators"]] == [("slide", "slide", 400.0)]
    assert (about["action"]["scale"], about["action"]["offset"]) == ([1.0], [0.0])
    assert [one["name"] for one in about["observation"]["terms"]] == ["cart_pos", "cart_vel", "pole_angle", "pole_vel"]
    assert about["check"] == {"observations": 1000, "tolerance": {"1": 1e-5, "100": 1e-5}}
    assert about["env"]["max_pos"] == 3.0
    assert {"mjxgym", "jax", "mujoco"} <= about["versions"].keys()
