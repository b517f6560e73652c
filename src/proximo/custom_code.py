"""The user's code: which modules a setting may import, and how errors in them are reported."""

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

from proximo.errors import ConfigError, EnvError, ProximoError, TrainingError, nearest

_LIBRARIES = (Path(__file__).parent, Path(sysconfig.get_paths()["stdlib"]))
_PACKAGES = {"site-packages", "dist-packages"}
"""Names of the folders of installed packages; ``dist-packages`` is Debian's."""


def is_of_library(file: str | None) -> bool:
    """Whether ``file`` belongs to Python, to an installed package or to proximo. True if ``file`` is None."""
    if file is None or file.startswith("<frozen"):
        return True
    path = Path(file)
    return not _PACKAGES.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in _LIBRARIES)


def is_users_function(found: Any, or_of_library: bool = False) -> bool:
    """Whether ``found`` is a function, jitted or not, of the user's code, or perhaps of a library."""
    function = inspect.unwrap(found) if callable(found) else found
    return inspect.isfunction(function) and (or_of_library or not is_of_library(function.__code__.co_filename))


def check_module(module_name: str) -> None:
    """Raise ``EnvError`` for a module that no setting may import: of Python, or inside a run or a published policy."""
    first, *rest = module_name.split(".")
    if first in sys.stdlib_module_names or "__main__" in (first, *rest):
        raise EnvError(
            f"{module_name!r} is a part of Python or a program, which settings must not import: expected one of your modules."
        )
    spec = None
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(first)  # the first part only: finding a submodule imports its parent
    for location in [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin or ""]:
        for folder in [Path(location), *Path(location).parents]:
            if (folder / "config.yaml").is_file() and ((folder / "checkpoints").is_dir() or (folder / "proximo.json").is_file()):
                raise EnvError(
                    f"The module {module_name!r} is inside the run {folder}: code in a run is never imported. Move it out of the run."
                )


def find_module(name: str) -> ModuleType | None:
    """Import a module of the user or of a package; None if it does not exist. Raises ``EnvError`` if no setting
    may import it, or if its code fails."""
    check_module(name)
    try:
        with custom_code_errors(f"Importing {name}"):
            return importlib.import_module(name)
    except EnvError as error:
        if is_missing(error.__cause__, name):
            return None
        raise


def imported(name: str, setting: str) -> Any:
    """The object that a ``setting`` names, as in ``my_module:MyTracker``. Raises ``ConfigError``."""
    module_name, _, path = name.rpartition(":")
    try:
        module = find_module(module_name)
    except EnvError as error:
        raise ConfigError(f"{setting}: {error}") from error
    if module is None:
        raise ConfigError(f"{setting}: there is no module {module_name!r}. It must be on Python's path or in the current folder.")
    found = follow(module, path)
    if found is None:
        offered = [name for name, item in vars(module).items() if inspect.isclass(item) or inspect.isfunction(item)]
        raise ConfigError(f"{setting}: {module_name} has no such name{nearest(path, offered)}.")
    return found


def follow(module: ModuleType, name: str) -> Any:
    """The object at ``name``, such as ``Outer.Inner``; None if it does not exist, or is in another module."""
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None or inspect.ismodule(found):
            return None
    return found


@contextlib.contextmanager
def custom_code_errors(what: str, kind: type[ProximoError] = EnvError) -> Iterator[None]:
    """Convert an exception of the user's code to an error of ``kind``, with ``what`` was running, file and line."""
    try:
        yield
    except (ProximoError, TrainingError):
        raise
    except (Exception, SystemExit) as error:
        raise kind(f"{what} raised {exception_text(error)}.") from error


def is_missing(error: BaseException | None, module: str) -> bool:
    """Whether ``error`` of an import means that ``module`` does not exist, and not that its code fails."""
    if isinstance(error, ModuleNotFoundError):
        return f"{module}.".startswith(f"{error.name}.")
    return isinstance(error, ValueError | TypeError) and not all(part.isidentifier() for part in module.split("."))


def exception_text(error: BaseException) -> str:
    """``RuntimeError: no screen (my_env.py, line 3)``: type and text of an exception, and its last line outside of libraries.

    Without a text, the line may be in a library. The text of a ``SyntaxError`` already has the line.
    """
    text = " ".join(str(error).split("\n\n")[0].split())
    frames = [] if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)
    frames = [f for f in frames if not is_of_library(f.filename)] or (frames if not text else [])
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{text and f': {text}'}{place}"
