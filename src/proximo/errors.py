"""What can go wrong, by whose hand: every message says what was given, what was expected, and the fix."""

import difflib
import shlex
import unicodedata
from collections.abc import Iterable
from typing import Any, Literal


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


def shown(value: Any, form: Literal["value", "text"] = "value", max_length: int = 80) -> str:
    """``value`` for a message: printable, and cut after ``max_length`` characters. ``form="text"`` omits the quotation marks of a string."""
    text = printable(str(value)) if form == "text" else repr(value)
    return text if len(text) <= max_length else f"{text[:max_length]}…"


def printable(text: str) -> str:
    """``text`` for a terminal. Control characters, which could move the cursor or hide words, become escapes; newlines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(_escaped(c) if c not in "\n\t" and unicodedata.category(c) in _CONTROL else c for c in text)


_CONTROL = ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def is_plain(text: str) -> bool:
    """Whether ``text`` has no control characters, newlines and tabs included."""
    return printable(text) == text and "\n" not in text and "\t" not in text


def command(*words: Any) -> str:
    """A command line that can be copied: words that a shell would split or expand are quoted."""
    return printable(shlex.join(map(str, words)))
