"""Names that the shell completes: environments, runs, checkpoints and studies. Listing them imports no slow library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from proximo.jax_setup import cache_folder
from proximo.storage import zoo
from proximo.storage.named_folders import is_run, known_folders

ENVIRONMENTS_FILE = "environments.txt"


def known_names(kind: str, word: str = "") -> list[str]:
    """Names of a ``kind``: ``environments``, ``runs`` or ``studies``. ``word`` is what the user has typed of the name."""
    if kind == "environments":
        return _environments()
    if kind == "runs":
        return _runs(word)
    return _with_last(known_folders(Path("tune"), lambda path: (path / "journal.log").is_file()), word)


def remember_environments(ids: Iterable[str]) -> None:
    """Save the ids for ``known_names``. Does nothing if the file cannot be written: only completion reads it."""
    path = cache_folder() / ENVIRONMENTS_FILE
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(ids) + "\n", encoding="utf-8")


def _environments() -> list[str]:
    """Environments with a preset, and those that ``proximo envs`` listed last. Asking every library would take seconds."""
    from proximo.config import presets

    listed: list[str] = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        listed = (cache_folder() / ENVIRONMENTS_FILE).read_text(encoding="utf-8").split()
    return sorted({*listed, *presets.names()})


def _runs(word: str) -> list[str]:
    """Runs by the names that commands take; after an ``@``, the checkpoints of the run before it; after ``zoo:``, its policies."""
    if word.startswith(zoo.PREFIX):
        return zoo.names()
    found, (name, at, _) = known_folders(Path("runs"), is_run), word.rpartition("@")
    if not at:
        return _with_last(found, word)
    run_dir = next((path for path in found if name in _names(path, found)), Path(name))
    steps = sorted((int(path.name) for path in run_dir.glob("checkpoints/[0-9]*") if path.name.isdigit()), reverse=True)
    return [f"{name}@{checkpoint}" for checkpoint in ("best", "last", *steps)]


def _with_last(found: list[Path], word: str) -> list[str]:
    """``last`` and the names of what was ``found``: the shortest of each until the user has typed something."""
    names = [name for path in found for name in _names(path, found)[: None if word else 1]]
    return ["last", *names] if found else []


def _names(path: Path, found: list[Path]) -> list[str]:
    """The texts that name a run, shortest first: its name if no other run has it, environment/name, and its path."""
    unique = [path.name] if sum(other.name == path.name for other in found) == 1 else []
    return [*unique, f"{path.parent.name}/{path.name}", str(path)]
