"""Small models with known answers, and the engines every physics test runs on."""

import functools

import mujoco
import pytest

from mjxgym import physics

ENGINES = ("c", "jax", "warp")
on_every_engine = pytest.mark.parametrize("engine", ENGINES)

# A ball in free flight, a pendulum, a block sliding on a plane: three trees that never meet.
SLIDING_FRICTION = 0.4
BLOCK_SPEED = 2.0
TRUTH = f"""
<mujoco>
  <option timestep="0.002" integrator="RK4" gravity="0 0 -9.81" iterations="20" ls_iterations="20" cone="elliptic"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" conaffinity="1" friction="{SLIDING_FRICTION} 0 0"/>
    <body name="ball" pos="0 5 3"><freejoint/><geom size="0.1"/></body>
    <body name="pendulum" pos="0 -5 2">
      <joint name="swing" axis="0 1 0"/>
      <geom type="sphere" size="0.001" pos="0 0 -0.5" mass="1"/>
    </body>
    <body name="block" pos="0 0 0.0999">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
      <geom type="box" size="0.2 0.2 0.1" mass="1" contype="1" friction="{SLIDING_FRICTION} 0 0"/>
    </body>
  </worldbody>
</mujoco>
"""

# A cart with one motor, one activation, a force sensor, a position sensor and a velocity sensor.
CART = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.5"/>
      <geom size="0.1" mass="2"/>
      <site name="grip" pos="0.3 0 0"/>
      <body name="load" pos="0 0 0.5"><geom size="0.05" mass="1"/><site name="mount"/></body>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="slide" gear="10"/>
    <general name="lagging" joint="slide" dyntype="filter" dynprm="0.1" gainprm="1"/>
  </actuator>
  <sensor>
    <framepos name="where" objtype="site" objname="grip"/>
    <framelinvel name="speed" objtype="site" objname="grip"/>
    <force name="joint_force" site="mount"/>
  </sensor>
</mujoco>
"""

# Eight balls that lie on a floor: one contact each.
BALLS = (
    "<mujoco><worldbody><geom type='plane' size='0 0 1'/>"
    + "".join(f"<body pos='{i} 0 0.099'><freejoint/><geom size='0.1'/></body>" for i in range(8))
    + "</worldbody></mujoco>"
)


def compiled(xml: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(xml)


@functools.cache
def loaded(xml: str, engine: str) -> physics.Engine:
    return physics.load(compiled(xml), engine)
