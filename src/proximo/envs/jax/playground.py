"""``playground:CartpoleBalance``: MuJoCo Playground without its wrappers."""

import subprocess
from typing import Any

from proximo.envs.jax.brax import Robot, quietly
from proximo.envs.libraries import check_names, load, take_limit
from proximo.errors import EnvError

VISION = ("vision", "vision_config")
"""Settings that are not supported: they draw pictures with Warp on a GPU."""
DOWNLOAD = 'python -c "from mujoco_playground._src import mjx_env; mjx_env.ensure_menagerie_exists()"'


def names() -> list[str]:
    """Return the tasks of the control suite, locomotion and manipulation."""
    return [
        "AcrobotSwingup", "AcrobotSwingupSparse", "BallInCup", "CartpoleBalance", "CartpoleBalanceSparse", "CartpoleSwingup",
        "CartpoleSwingupSparse", "CheetahRun", "FingerSpin", "FingerTurnEasy", "FingerTurnHard", "FishSwim", "HopperHop", "HopperStand",
        "HumanoidStand", "HumanoidWalk", "HumanoidRun", "PendulumSwingup", "PointMass", "ReacherEasy", "ReacherHard", "SwimmerSwimmer6",
        "WalkerRun", "WalkerStand", "WalkerWalk",
        "ApolloJoystickFlatTerrain", "BarkourJoystick", "BerkeleyHumanoidJoystickFlatTerrain", "BerkeleyHumanoidJoystickRoughTerrain",
        "G1JoystickFlatTerrain", "G1JoystickRoughTerrain", "Go1JoystickFlatTerrain", "Go1JoystickRoughTerrain", "Go1Getup", "Go1Handstand",
        "Go1Footstand", "H1InplaceGaitTracking", "H1JoystickGaitTracking", "Op3Joystick", "SpotFlatTerrainJoystick", "SpotGetup",
        "SpotJoystickGaitTracking", "T1JoystickFlatTerrain", "T1JoystickRoughTerrain",
        "AlohaHandOver", "AlohaSinglePegInsertion", "PandaPickCube", "PandaPickCubeOrientation", "PandaPickCubeCartesian",
        "PandaOpenCabinet", "PandaRobotiqPushCube", "LeapCubeReorient", "LeapCubeRotateZAxis", "AeroCubeRotateZAxis",
    ]  # fmt: skip


def from_name(name: str, settings: dict[str, Any]) -> Robot:
    """Make a task; ``settings`` are entries of its configuration. ``impl`` is ``jax`` by default: Playground's default, Warp,
    requires the number of environments in advance."""
    env_id = f"playground:{name}"
    with quietly():
        registry = load(env_id).registry
    config = registry.get_default_config(name)
    limit, settings = take_limit(settings, "episode_length", config.episode_length)
    check_names(settings, [entry for entry in config if entry not in VISION], env_id)
    overrides = {**({"impl": "jax"} if "impl" in config else {}), **settings, "episode_length": limit}
    try:
        return Robot(registry.load(name, config_overrides=overrides), limit, "_mjx_model")
    except (subprocess.SubprocessError, OSError) as error:  # OSError: there is no git
        if load(env_id, "._src.mjx_env").MENAGERIE_PATH.exists():
            raise
        raise EnvError(
            f"{env_id} needs models of robots, which Playground downloads with git, and the download failed. With a connection to the "
            f"internet, run: {DOWNLOAD}"
        ) from error
