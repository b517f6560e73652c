"""Exceptions, checks of arguments, and helpers to format messages: what was given, what was expected, the fix."""

import contextlib
import difflib
import importlib.util
import numbers
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeGuard


class ProximoError(Exception):
    """Base of errors that a user can fix. The command line prints the message and exits with 2."""


class ConfigError(ProximoError):
    """A setting or argument is unknown, has the wrong type, is out of range, or contradicts another one."""


class EnvError(ProximoError):
    """An environment is unknown, violates its protocol, or has a space that no policy supports."""


class CheckpointError(ProximoError):
    """A run or a checkpoint is missing, damaged, or has another format."""


class RunDirectoryError(ProximoError):
    """A run directory already exists, or another process is writing to it."""


class TrainingError(Exception):
    """Training failed (NaN, infinity, a runtime that hangs). The last good checkpoint is kept; the command line exits with 1."""


class EnvironmentFault(TrainingError):  # noqa: N818
    """An environment raised an exception during training, broke its protocol, or its worker died too often.

    After an exception, the message ends with its traceback.
    """


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether ``value`` is an integer of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether ``value`` is a real number of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


@contextlib.contextmanager
def instead_of_os_errors(kind: type[Exception], what: str, fix: str) -> Iterator[None]:
    """An ``OSError`` in the block becomes the error ``kind``: ``what`` failed, the reason of the system, and the ``fix``."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what} ({error.strerror or error}): {fix}") from error


def nearest(name: str, known: Iterable[str], min_similarity: float = 0.6) -> str:
    """The hint after an unknown name: `` (did you mean 'num_envs'?)``; empty if no known name is close."""
    match = closest(name, known, min_similarity)
    return f" (did you mean {match!r}?)" if match else ""


def closest(name: str, known: Iterable[str], min_similarity: float) -> str:
    """The known name that is closest to ``name``; empty if none has this similarity, difflib's ratio from 0 to 1."""
    in_lower_case = {one.lower(): one for one in known}
    matches = difflib.get_close_matches(name.lower(), in_lower_case, n=1, cutoff=min_similarity)
    return in_lower_case[matches[0]] if matches else ""


def lacking(what: str, extra: str) -> EnvError:
    """The error for a library that ``what`` needs, and that proximo's ``extra`` installs."""
    return EnvError(f"{what} needs a library that is not installed: pip install 'proximo[{extra}]'.")


def require(module: str, what: str, extra: str) -> None:
    """Raise ``EnvError`` if ``what`` needs a ``module`` that is not installed. The module is not imported, which may take seconds."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:  # a folder of that name, such as the one that wandb creates, is not the library
        raise lacking(what, extra)


def shown(value: Any, form: Literal["value", "text"] = "value", max_length: int = 80) -> str:
    """Format ``value`` for a message: printable, and cut. ``form="text"`` omits the quotation marks of a string."""
    text = printable(str(value)) if form == "text" else re.sub(r"\n\s*", " ", repr(value))  # arrays have several lines
    return text if len(text) <= max_length else f"{text[:max_length]}…"


def is_plain(text: str) -> bool:
    """Whether ``text`` has no control characters, newlines and tabs included."""
    return text.isprintable() or all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text)


def printable(text: str) -> str:
    """Escape control characters, which could move the cursor or hide words. Newlines and tabs are kept."""
    return "".join(c if is_plain(c) or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def command(*words: Any) -> str:
    """A command line that the user can copy. Words that a shell would split or expand are quoted."""
    return printable(shlex.join(map(str, words)))
