"""Draws states of gymnax's environments off-screen.

gymnax itself draws with matplotlib, or makes a Gymnasium environment for every frame, which takes tens of milliseconds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from proximo.envs.canvas import AMBER, BLUE, GRAY, GREEN, INK, PALE, RED, TINTS, Canvas, Point
from proximo.envs.jax import gymnax_boards

FPS = {
    "CartPole-v1": 50, "Acrobot-v1": 15, "Pendulum-v1": 30, "MountainCar-v0": 30, "MountainCarContinuous-v0": 30,
    "PointRobot-misc": 15, "Reacher-misc": 20, "Swimmer-misc": 20, "DeepSea-bsuite": 4, "FourRooms-misc": 6, "MetaMaze-misc": 6,
    "FrozenLake-misc": 4, "Catch-bsuite": 6,
}  # fmt: skip
"""Frames per second of each environment; Gymnasium's values where it has the same environment."""


def drawing_of(name: str, env: Any) -> gymnax_boards.Draw | None:
    """Return a function that draws the states of ``env``, registered as ``name``; None if there is none."""
    return _STATES.get(name) or gymnax_boards.drawing_of(name, env)


def _at(place: Any) -> Point:
    return float(place[0]), float(place[1])


def _turned(point: Point, angle: float) -> Point:
    """Rotate ``point`` about the origin, counterclockwise."""
    c, s = math.cos(angle), math.sin(angle)
    return c * point[0] - s * point[1], s * point[0] + c * point[1]


def _cartpole(state: Any, params: Any) -> np.ndarray:
    edge, half_pole = float(params.x_threshold), float(params.length)
    right = 1.1 * edge
    canvas = Canvas(480, 320, (-right, right, -0.8, 2 * right * 320 / 480 - 0.8))
    canvas.line([(-right, 0), (right, 0)], GRAY)
    for x in (-edge, edge):  # the episode ends beyond them
        canvas.line([(x, -0.25), (x, 0.25)], RED, 3)
    x, angle = float(state.x), float(state.theta)
    canvas.box((x - 0.3, 0.02), (x + 0.3, 0.34), INK)
    tip = _turned((0.0, 2 * half_pole), -angle)
    canvas.line([(x, 0.3), (x + tip[0], 0.3 + tip[1])], AMBER, 9)
    canvas.disc((x, 0.3), 5, BLUE)
    return canvas.array()


def _acrobot(state: Any, params: Any) -> np.ndarray:
    first, second = float(params.link_length_1), float(params.link_length_2)
    reach = 1.15 * (first + second)
    canvas = Canvas(400, 400, (-reach, reach, -reach, reach))
    canvas.line([(-reach, 1.0), (reach, 1.0)], GREEN)  # the goal height
    inner = float(state.joint_angle1)
    outer = inner + float(state.joint_angle2)
    elbow = (first * math.sin(inner), -first * math.cos(inner))
    tip = (elbow[0] + second * math.sin(outer), elbow[1] - second * math.cos(outer))
    canvas.line([(0.0, 0.0), elbow], BLUE, 14)
    canvas.line([elbow, tip], TINTS[5], 14)
    for joint in ((0.0, 0.0), elbow):
        canvas.disc(joint, 6, INK)
    return canvas.array()


def _pendulum(state: Any, params: Any) -> np.ndarray:
    length = float(params.l)
    reach = 1.5 * length
    canvas = Canvas(400, 400, (-reach, reach, -reach, reach))
    # 0 is upright and angles grow counterclockwise, as in Gymnasium.
    tip = _turned((0.0, length), float(state.theta))
    canvas.line([(0.0, 0.0), tip], RED, 26)
    canvas.disc((0.0, 0.0), 6, INK)
    torque = float(np.squeeze(state.last_u)) / float(params.max_torque)
    canvas.text((0.0, -0.78 * reach), f"torque {float(np.squeeze(state.last_u)):+.2f}", 18)
    canvas.box((-0.5 * reach, -0.94 * reach), (0.5 * reach, -0.88 * reach), PALE)
    canvas.box((0.0, -0.94 * reach), (0.5 * reach * torque, -0.88 * reach), BLUE)
    return canvas.array()


def _hill(x: float) -> float:
    return 0.45 * math.sin(3 * x) + 0.55


def _mountain_car(state: Any, params: Any) -> np.ndarray:
    low, high, goal = (float(getattr(params, name)) for name in ("min_position", "max_position", "goal_position"))
    right = high + 0.06
    canvas = Canvas(480, 320, (low, right, -0.02, (right - low) * 320 / 480 - 0.02))
    canvas.line([(float(x), _hill(float(x))) for x in np.linspace(low, right, 120)], GRAY, 3)
    canvas.line([(goal, _hill(goal)), (goal, _hill(goal) + 0.14)], INK)
    canvas.polygon([(goal, _hill(goal) + d) for d in (0.14, 0.08)] + [(goal + 0.07, _hill(goal) + 0.11)], GREEN)
    x = float(state.position)
    slope = math.atan(1.35 * math.cos(3 * x))

    def beside(along: float, above: float) -> Point:
        dx, dy = _turned((along, above), slope)
        return x + dx, _hill(x) + dy

    canvas.polygon([beside(-0.07, 0.03), beside(0.07, 0.03), beside(0.07, 0.09), beside(-0.07, 0.09)], BLUE)
    for along in (-0.045, 0.045):
        canvas.disc(beside(along, 0.025), 7, INK)
    return canvas.array()


def _point_robot(state: Any, params: Any) -> np.ndarray:
    canvas = Canvas(400, 400, (-1.4, 1.4, -0.9, 1.9))
    radius = float(params.circle_radius)
    canvas.line([_turned((radius, 0.0), math.pi * k / 80) for k in range(81)], GRAY)
    canvas.disc(_at(state.goal), canvas.unit * float(params.goal_radius), (190, 222, 203))
    canvas.disc(_at(state.goal), 4, GREEN)
    canvas.disc(_at(state.pos), 9, RED)
    return canvas.array()


def _reacher(state: Any, params: Any) -> np.ndarray:
    angles = np.asarray(state.angles, float)
    reach = 1.1 * len(angles)
    canvas = Canvas(400, 400, (-reach, reach, -reach, reach))
    joints = np.concatenate([np.zeros((1, 2)), np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1), 0)])
    canvas.disc(_at(state.goal_xy), 10, GREEN)
    canvas.line([_at(joint) for joint in joints], BLUE, 12)
    for joint in joints[:-1]:
        canvas.disc(_at(joint), 5, INK)
    canvas.disc(_at(joints[-1]), 8, RED)
    return canvas.array()


def _swimmer(state: Any, params: Any) -> np.ndarray:
    canvas = Canvas(400, 400, (-2.0, 2.0, -2.0, 2.0))
    canvas.disc(_at(state.goal_xy), 12, GREEN)
    for urchin in np.asarray(state.urchin_xys):
        canvas.disc(_at(urchin), 10, INK)
    canvas.disc(_at(state.xy), 9, RED)
    return canvas.array()


_STATES: dict[str, gymnax_boards.Draw] = {
    "CartPole-v1": _cartpole,
    "Acrobot-v1": _acrobot,
    "Pendulum-v1": _pendulum,
    "MountainCar-v0": _mountain_car,
    "MountainCarContinuous-v0": _mountain_car,
    "PointRobot-misc": _point_robot,
    "Reacher-misc": _reacher,
    "Swimmer-misc": _swimmer,
}
