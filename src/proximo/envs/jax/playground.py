"""``playground:CartpoleBalance``: MuJoCo Playground's control suite, without its wrappers (``physics.Robot``)."""

from __future__ import annotations

from typing import Any

from proximo.envs.jax import libraries
from proximo.envs.jax.physics import Robot
from proximo.envs.settings import hold_names, take_limit
from proximo.errors import EnvError
from proximo.users_code import users_code

NAMES = (
    "AcrobotSwingup", "AcrobotSwingupSparse", "BallInCup", "CartpoleBalance", "CartpoleBalanceSparse", "CartpoleSwingup",
    "CartpoleSwingupSparse", "CheetahRun", "FingerSpin", "FingerTurnEasy", "FingerTurnHard", "FishSwim", "HopperHop", "HopperStand",
    "HumanoidStand", "HumanoidWalk", "HumanoidRun", "PendulumSwingup", "PointMass", "ReacherEasy", "ReacherHard", "SwimmerSwimmer6",
    "WalkerRun", "WalkerStand", "WalkerWalk",
)  # fmt: skip
VISION = ("vision", "vision_config")
"""Settings that are not served: pictures by Warp, on a GPU."""


def names() -> list[str]:
    """The control suite; none where MuJoCo Playground is not installed."""
    return libraries.listed("mujoco_playground", NAMES)


def from_name(name: str, settings: dict[str, Any]) -> Robot:
    """An environment of the control suite; ``settings`` are entries of its configuration.

    ``impl`` is ``jax`` unless it is set: Playground's own default, Warp, wants to know how many environments there will be.
    """
    env_id = f"playground:{name}"
    library = libraries.load("mujoco_playground", env_id, "playground")
    suite = library.dm_control_suite
    if name in (*library.locomotion.ALL_ENVS, *library.manipulation.ALL_ENVS):
        raise EnvError(
            f"{env_id} is made of models that MuJoCo Playground fetches from the internet while it makes it, and is not served: its "
            "control suite is (`proximo envs playground`); a class of your own can wrap it (docs/own-jax-environment.md)."
        )
    libraries.hold_known(name, suite.ALL_ENVS, "playground")
    config = suite.get_default_config(name)
    limit, settings = take_limit(settings, "episode_length", config.episode_length)
    hold_names(settings, [entry for entry in config if entry not in VISION], env_id)
    overrides = {**({"impl": "jax"} if "impl" in config else {}), **settings, "episode_length": limit}
    with users_code(f"Making {env_id}"):
        return Robot(suite.load(name, config_overrides=overrides), limit)
