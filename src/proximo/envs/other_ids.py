"""Ids that are known from elsewhere: from other libraries, from earlier versions, or in another form. Errors and warnings read this table.

``other_libraries`` has the names of settings.
"""

from __future__ import annotations

import re
from pathlib import Path

MUJOCO_DIFFERENCES = {
    "Ant": "its observation includes contact forces (105 instead of 27 numbers), contacts cost reward, and a fallen ant gets no healthy reward",
    "HalfCheetah": "its observations, actions and rewards are the same",
    "Hopper": "a fallen hopper gets no healthy reward",
    "Humanoid": "its observation lacks entries that were always 0 (348 instead of 376 numbers), contacts cost reward, and a fallen humanoid gets "
    "no healthy reward",
    "HumanoidStandup": "its observation lacks entries that were always 0 (348 instead of 376 numbers)",
    "InvertedDoublePendulum": "its observation lacks entries that were always 0 (9 instead of 11 numbers), and a fallen pendulum gets no healthy reward",
    "InvertedPendulum": "a fallen pendulum gets no reward",
    "Pusher": "its object is heavier than air, and its rewards are computed after the step instead of before",
    "Reacher": "its observation lacks an entry that was always 0 (10 instead of 11 numbers), and its rewards are computed after the step instead of before",
    "Swimmer": "its observations, actions and rewards are the same",
    "Walker2d": "both feet have the same friction, and a fallen walker gets no healthy reward",
}
"""MuJoCo tasks of Gymnasium, and how version 5 differs from version 4 by default."""

_ANSWERS = (
    (r"CartPole-?Masked(-v\d)?", "CartPole with hidden velocities is 'CartPoleNoVel-v1' here."),
    (r"PocMemoryEnv", "it is 'proximo:PocMemory' here."),
    (r"[Mm]ini[Gg]rid", "name one of its tasks, for example 'minigrid:MemoryS9'."),
    (r"[Mm]emory-?[Gg]ym", "name one of its tasks, for example 'memory-gym:MysteryPath-Grid'."),
    (
        r"MiniGrid-(?P<name>.+?)(-v0)?",
        r"use 'minigrid:\g<name>', the same task, whose observation is the view of the agent without the text.",
    ),
    (
        r"procgen([:_/-].*)?",
        "the package procgen needs Python 3.10 or older. EnvPool has its games, for example 'envpool:CoinrunEasy-v0' and "
        "'envpool:CoinrunHard-v0'.",
    ),
    (
        r"(shimmy:)?(dm_control|dm-control|dmc)([:_/-].*)?",
        "for tasks of the DeepMind Control Suite, use MuJoCo Playground, for example 'playground:CartpoleBalance', or EnvPool, for example "
        "'envpool:CartpoleBalance-v1'. With shimmy[dm-control] installed, ids such as 'dm_control/cartpole-balance-v0' work by name.",
    ),
)
_FILE = re.compile(r"(?P<path>.+)\.py:(?P<name>\w+)")
_DOTTED = re.compile(r"(?P<module>[a-z_]\w*(\.[a-z_]\w*)*)\.(?P<name>[A-Z]\w*)")
_MUJOCO = re.compile(rf"(?P<task>{'|'.join(MUJOCO_DIFFERENCES)})-v(?P<version>[0-4])")


def answer(env_id: str) -> str | None:
    """What to use instead of ``env_id``, as sentences; None if the id is not known from elsewhere."""
    if match := _FILE.fullmatch(env_id):
        path = Path(match["path"])
        is_here = not path.is_absolute() and ".." not in path.parts
        module = ".".join(path.parts) if is_here else path.name
        place = "" if is_here else f", in the folder {str(path.parent)!r}"
        return f"expected the name of a module instead of a file: '{module}:{match['name']}'{place}."
    if match := _DOTTED.fullmatch(env_id):
        return f"expected a colon after the name of the module: '{match['module']}:{match['name']}'."
    # Gymnasium still makes version 4, except for Pusher, whose model MuJoCo 3 changes.
    if (not env_id.endswith("-v4") or env_id == "Pusher-v4") and (newer := newer_version(env_id)):
        return newer
    return next((match.expand(sentence) for pattern, sentence in _ANSWERS if (match := re.fullmatch(pattern, env_id))), None)


def newer_version(env_id: str) -> str | None:
    """What to use instead of an earlier version of a MuJoCo task, and how it differs; None for any other id."""
    match = _MUJOCO.fullmatch(env_id)
    if match is None:
        return None
    simulator = (
        ""
        if match["version"] == "4"
        else " Earlier versions need mujoco-py, which binds an older MuJoCo, so their results may differ more."
    )
    return (
        f"use '{match['task']}-v5', which has a preset. Compared with version 4, {MUJOCO_DIFFERENCES[match['task']]}.{simulator}"
    )


def of_atari(env_id: str) -> str:
    """The id that an Atari game would have here: ``ale:space_invaders`` for ``SpaceInvaders-v4``."""
    game = re.sub(r"(Deterministic)?-v\d+$", "", env_id)
    return "ale:" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", game).lower()
