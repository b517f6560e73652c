"""Ids that no environment has here: known from other libraries or earlier versions, or in another form.

``other_libraries`` has the names of settings.
"""

from __future__ import annotations

import re
from pathlib import Path

MUJOCO = (
    "Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum", "Pusher", "Reacher",
    "Swimmer", "Walker2d",
)  # fmt: skip
"""MuJoCo tasks of Gymnasium, whose newest version is 5."""
_NEWER = r"use '\g<1>-v5', which has a preset. Gymnasium's page of the task says how the versions differ."
_ANSWERS = (
    # Gymnasium still makes version 4, except for Pusher, whose model MuJoCo 3 changes.
    (rf"({'|'.join(MUJOCO)})-v[0-3]", _NEWER),
    (r"(Pusher)-v4", _NEWER),
    (r"CartPole-?Masked(-v\d)?", "CartPole with hidden velocities is 'CartPoleNoVel-v1' here."),
    (r"PocMemoryEnv", "it is 'proximo:PocMemory' here."),
    (r"[Mm]ini[Gg]rid", "name one of its tasks, for example 'minigrid:MemoryS9'."),
    (r"[Mm]emory-?[Gg]ym", "name one of its tasks, for example 'memory-gym:MysteryPath-Grid'."),
    (
        r"MiniGrid-(.+?)(-v0)?",
        r"use 'minigrid:\g<1>', the same task, whose observation is the view of the agent without the text.",
    ),
    (r"procgen([:_/-].*)?", "EnvPool has its games, for example 'envpool:CoinrunEasy-v0' and 'envpool:CoinrunHard-v0'."),
    (
        r"(shimmy:)?(dm_control|dm-control|dmc)([:_/-].*)?",
        "for tasks of the DeepMind Control Suite, use MuJoCo Playground, for example 'playground:CartpoleBalance', or EnvPool, for example "
        "'envpool:CartpoleBalance-v1'. With shimmy[dm-control] installed, ids such as 'dm_control/cartpole-balance-v0' work by name.",
    ),
    (r"([a-z_]\w*(?:\.[a-z_]\w*)*)\.([A-Z]\w*)", r"expected a colon after the name of the module: '\g<1>:\g<2>'."),
)


def answer(env_id: str) -> str | None:
    """What to use instead of ``env_id``, as sentences; None if the id is not known from elsewhere."""
    if match := re.fullmatch(r"(?P<path>.+)\.py:(?P<name>\w+)", env_id):
        path = Path(match["path"])
        is_here = not path.is_absolute() and ".." not in path.parts
        module, place = (".".join(path.parts), "") if is_here else (path.name, f", in the folder {str(path.parent)!r}")
        return f"expected the name of a module instead of a file: '{module}:{match['name']}'{place}."
    return next((match.expand(sentence) for pattern, sentence in _ANSWERS if (match := re.fullmatch(pattern, env_id))), None)


def newer_version(env_id: str) -> str | None:
    """What to use instead of an earlier version of a MuJoCo task; None for any other id."""
    match = re.fullmatch(rf"({'|'.join(MUJOCO)})-v[0-4]", env_id)
    return match and match.expand(_NEWER)
