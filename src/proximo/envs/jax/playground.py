"""``playground:CartpoleBalance``: MuJoCo Playground's control suite without its wrappers."""

from typing import Any

from proximo.envs.jax.brax import Robot, quietly
from proximo.envs.libraries import check_names, load, take_limit

VISION = ("vision", "vision_config")
"""Settings that are not supported: they draw pictures with Warp on a GPU."""


def names() -> list[str]:
    """Return the tasks of the control suite. The others download their models."""
    return [
        "AcrobotSwingup", "AcrobotSwingupSparse", "BallInCup", "CartpoleBalance", "CartpoleBalanceSparse", "CartpoleSwingup",
        "CartpoleSwingupSparse", "CheetahRun", "FingerSpin", "FingerTurnEasy", "FingerTurnHard", "FishSwim", "HopperHop", "HopperStand",
        "HumanoidStand", "HumanoidWalk", "HumanoidRun", "PendulumSwingup", "PointMass", "ReacherEasy", "ReacherHard", "SwimmerSwimmer6",
        "WalkerRun", "WalkerStand", "WalkerWalk",
    ]  # fmt: skip


def from_name(name: str, settings: dict[str, Any]) -> Robot:
    """Make a task of the control suite; ``settings`` are entries of its configuration. ``impl`` is ``jax`` by default:
    Playground's default, Warp, requires the number of environments in advance."""
    env_id = f"playground:{name}"
    with quietly():
        suite = load(env_id).dm_control_suite
    config = suite.get_default_config(name)
    limit, settings = take_limit(settings, "episode_length", config.episode_length)
    check_names(settings, [entry for entry in config if entry not in VISION], env_id)
    overrides = {**({"impl": "jax"} if "impl" in config else {}), **settings, "episode_length": limit}
    return Robot(suite.load(name, config_overrides=overrides), limit)
