"""Errors in the code of a user's own environment, told as a sentence that names the line."""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from proximo.errors import EnvError, ProximoError, TrainingError

_LIBRARIES = (str(Path(__file__).parents[1]), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"], "<frozen")


@contextlib.contextmanager
def users_code(what: str) -> Iterator[None]:
    """Turn what a user's code raises into an ``EnvError``: ``what`` was running, the error, file and line."""
    try:
        yield
    except (ProximoError, TrainingError):
        raise
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split("\n\n")[0].split())
        raise EnvError(f"{what} raised {type(error).__name__}: {message}{_place(error)}.") from error


def _place(error: BaseException) -> str:
    """`` (file, line 3)``: the last line that is no library's."""
    if isinstance(error, SyntaxError) and error.filename:
        return ""  # its text says so itself
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_LIBRARIES)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
