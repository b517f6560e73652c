"""Makes environments without the messages that their libraries print for every instance or process, about nothing a user can change."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

Make = Callable[..., Any]


def quiet(make: Make, entry_point: str) -> Make:
    """Return ``make``, silenced if the library of the ``entry_point`` is one that prints. The result can be pickled if ``make`` can."""
    if "ale_py" in entry_point:
        return partial(_without_banner, make)
    return partial(_without_deprecation, make) if entry_point.startswith("gymnasium.envs.mujoco") else make


def _without_banner(make: Make, **rendering: Any) -> Any:
    """Make an Atari game without the banner that ALE prints in each process."""
    from ale_py import ALEInterface, LoggerMode

    ALEInterface.setLoggerMode(LoggerMode.Error)
    return make(**rendering)


def _without_deprecation(make: Make, **rendering: Any) -> Any:
    """Make a robot of Gymnasium without MuJoCo's warning that HalfCheetah's model uses ``settotalmass``. Other warnings become Python
    warnings; after this call, MuJoCo handles warnings as before."""
    import mujoco  # pyright: ignore[reportMissingImports]

    def report(message: str) -> None:
        if "settotalmass" not in message:
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(report)
    try:
        return make(**rendering)
    finally:
        mujoco.set_mju_user_warning(handler)
