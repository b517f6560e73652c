"""What can go wrong, by whose hand: every message says what was given, what was expected, and the fix."""

import difflib
from collections.abc import Iterable


class ProximoError(Exception):
    """A mistake that a user can mend; the command line prints it as one sentence and exits with 2."""


class ConfigError(ProximoError):
    """A setting is unknown, of the wrong type, out of range, or at odds with another one."""


class EnvError(ProximoError):
    """An environment is unknown, breaks the protocol, or has a space that no policy here can serve."""


class CheckpointError(ProximoError):
    """A run or a checkpoint is missing, damaged, or was made by something else."""


class RunDirectoryError(ProximoError):
    """A run directory exists already, or another process is writing into it."""


class TrainingError(Exception):
    """Training stopped by itself (NaN, infinity, a runtime that hangs); the last good checkpoint stands. Exit 1."""


class EnvironmentFault(TrainingError):  # noqa: N818
    """An environment raised, or was lost too often, while it was trained on; the message ends with its own traceback."""


MEMORY_GYM = "pip install --no-deps memory-gym && pip install pygame-ce"
"""Memory Gym's own pins are for an older Gymnasium, so that no extra of proximo's can install it."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint behind an unknown name: `` (did you mean 'num_envs'?)``, or nothing when no known name is close."""
    in_lower_case = {one.lower(): one for one in known}
    matches = difflib.get_close_matches(name.lower(), in_lower_case, n=1, cutoff=0.6)
    return f" (did you mean {in_lower_case[matches[0]]!r}?)" if matches else ""


def lacking(what: str, extra: str) -> EnvError:
    """The error for a library that is not installed: ``what`` needs it, ``extra`` of proximo's installs it."""
    return EnvError(f"{what} needs a library that is not installed: pip install 'proximo[{extra}]'.")
