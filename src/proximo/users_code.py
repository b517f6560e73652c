"""Code of the user's: which modules settings may have imported, and errors in it, told as a sentence that names the line."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from proximo.errors import ConfigError, EnvError, ProximoError, TrainingError

_LIBRARIES = (str(Path(__file__).parent), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"], "<frozen")


def is_of_library(file: str | None) -> bool:
    """Whether ``file`` belongs to Python, to what is installed, or to proximo; also where there is none."""
    return file is None or file.startswith(_LIBRARIES)


def is_users_function(found: Any) -> bool:
    """Whether it is a function, compiled or not, that was written in a module of the user's own, wherever it was found."""
    try:
        function = inspect.unwrap(found) if callable(found) else found
    except ValueError:  # it wraps itself
        return False
    return inspect.isfunction(function) and not is_of_library(function.__code__.co_filename)


def hold_module(module_name: str) -> None:
    """Raise ``EnvError`` for a module that no settings may have imported: Python's own, some of which act when they are imported, and what
    lies within a run or a published policy, which are data."""
    parts = module_name.split(".")
    if parts[0] in sys.stdlib_module_names or "__main__" in parts:
        raise EnvError(
            f"{module_name!r} is a part of Python or a program, and no settings import it: expected a module of your own."
        )
    try:
        spec = importlib.util.find_spec(parts[0]) if parts[0] else None  # of the first part only: to find more, it is imported
    except (ImportError, ValueError):
        spec = None
    for location in [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin or ""]:
        for folder in [Path(location), *Path(location).parents]:
            if (folder / "config.yaml").is_file() and ((folder / "checkpoints").is_dir() or (folder / "proximo.json").is_file()):
                raise EnvError(f"The module {module_name!r} lies in {folder}, a run: code that comes with one is never imported.")


def imported(module_name: str, setting: str) -> ModuleType:
    """The module that a setting names. ``setting`` says which, as ``track = 'my_module:MySink'``. Raises ``ConfigError`` where it cannot be
    imported."""
    try:
        hold_module(module_name)
    except EnvError as error:
        raise ConfigError(f"{setting}: {error}") from None
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"{setting}: the module {module_name!r} cannot be imported ({type(error).__name__}: {error}). It must lie on "
            "Python's path, or where you stand."
        ) from error


@contextlib.contextmanager
def users_code(what: str, kind: type[ProximoError] = EnvError) -> Iterator[None]:
    """Turn what a user's code raises into an error of that ``kind``: ``what`` was running, the error, file and line."""
    try:
        yield
    except (ProximoError, TrainingError):
        raise
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split("\n\n")[0].split())
        raise kind(f"{what} raised {type(error).__name__}: {message}{_place(error)}.") from error


def _place(error: BaseException) -> str:
    """`` (file, line 3)``: the last line that is no library's."""
    if isinstance(error, SyntaxError) and error.filename:
        return ""  # its text says so itself
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_of_library(f.filename)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
