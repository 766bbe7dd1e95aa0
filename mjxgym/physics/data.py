"""`Data`: what an engine tells about one world, as named arrays that mean the same on every engine.

When each array is current, after `Engine.advance(..., refresh=...)`:

| arrays | "none" | "position" | "velocity" | after `place` |
|---|---|---|---|---|
| time, qpos, qvel, act | now | now | now | now |
| ctrl | as given | as given | as given | as given |
| position: xpos ... subtree_com, sensors of that stage | before | now | now | now |
| velocity: cvel, qfrc_passive, sensors of that stage | before | before | now | now |
| force: actuator_force, qfrc_actuator, sensors of that stage | last | last | last | now |

"before": before the last substep; "last": what acted during it. A force sensor is one of MuJoCo's acceleration stage:
force, torque, touch, accelerometer...

"Before the last substep" is one `sim_dt` old: an engine integrates last, and a full recomputation costs about as much
as a substep. So read root and joint states from qpos and qvel, and ask for a stage only if bodies, sites or sensors
must not lag. Forces are always those that acted during the last substep: that is what a force sensor reports.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array

from mjxgym.tree import Record


class Overflow(NamedTuple):
    """Buffers that were too small in some world; each [] bool. Only engine warp has such buffers.

    Contacts come from one pool that all worlds share, so the contact bits are set in every world when it runs out.
    """

    constraints: Array  # rows of constraints were dropped (njmax)
    broadphase: Array  # candidate pairs were dropped (naconmax)
    narrowphase: Array  # contacts were dropped (naconmax)
    collision: Array  # convex or height-field collision ran out of scratch space, or of room in its polytope
    other: Array  # any other of the engine's buffers


# What an engine computes on the way and can hand out. A task asks for those it reads (`load(..., arrays=...)`): the
# others are None in `Data`, and cost neither memory nor time.
ARRAYS = (
    "xpos",
    "xquat",
    "xmat",
    "site_xpos",
    "site_xmat",
    "subtree_com",
    "cvel",
    "qfrc_passive",
    "actuator_force",
    "qfrc_actuator",
    "sensordata",
)


class Data(Record):
    """One world. Unbatched. SI units, world frame, quaternions w, x, y, z; names and layouts are MuJoCo's."""

    time: Array  # [] s since the world was placed
    qpos: Array  # [nq]
    qvel: Array  # [nv]; a free joint: linear in the world frame, then angular in the body frame
    act: Array  # [na] actuator activations
    ctrl: Array  # [nu] what the actuators were last told: torque, position or velocity target
    xpos: Array  # [nbody, 3] body origins
    xquat: Array  # [nbody, 4]
    xmat: Array  # [nbody, 3, 3]
    site_xpos: Array  # [nsite, 3]
    site_xmat: Array  # [nsite, 3, 3]
    subtree_com: Array  # [nbody, 3]
    cvel: Array  # [nbody, 6] angular, then linear at the subtree_com of the body's tree (see `frames.body_velocity`)
    qfrc_passive: Array  # [nv] springs, dampers, fluid
    actuator_force: Array  # [nu]
    qfrc_actuator: Array  # [nv]
    sensordata: Array  # [nsensordata], sensors one after another (see `Names.sensor`)
    overflow: Any  # `Overflow`, or () on engines that have no buffers to fill
    private: Any  # what the engine needs to go on exactly; nobody else looks inside
