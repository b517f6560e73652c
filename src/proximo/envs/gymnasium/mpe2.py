"""``mpe2:simple_spread_v3``: the Multi Particle Environments, which have PettingZoo's interface."""

from typing import Any

from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.gymnasium.pettingzoo import from_module, versions
from proximo.envs.gymnasium.preprocessing import Preprocessing


def names() -> list[str]:
    """Return all environments."""
    return versions("mpe2")


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make an environment; ``settings`` are arguments of its ``parallel_env``."""
    return from_module(f"mpe2.{name}", f"mpe2:{name}", settings, preprocessing)
