"""The folders of runs and studies, and which one a user means. Shells complete names, so it imports nothing slow."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from proximo.errors import CheckpointError, is_plain, nearest, shown


def seed_run_dirs(path: Path) -> list[Path]:
    """The runs in a group of seeds (``seed-<i>/``), by seed. Empty for an ordinary run."""
    found = [folder for folder in path.glob("seed-*") if re.fullmatch(r"seed-\d+", folder.name) and folder.is_dir()]
    return sorted(found, key=lambda folder: int(folder.name.removeprefix("seed-")))


def names_of(run_dir: Path) -> tuple[str, ...]:
    """The name of a run; of one of several seeds, the name of the group and of its folder."""
    path = run_dir.resolve()
    return path.parts[-2 if path in seed_run_dirs(path.parent) else -1 :]


def is_run(path: Path) -> bool:
    """Whether ``path`` is a run directory, or the folder of a group of seeds."""
    try:
        return (path / "config.yaml").is_file() or bool(seed_run_dirs(path))
    except OSError:  # a name that is too long
        return False


def known_folders(parent: Path, is_one: Callable[[Path], bool]) -> list[Path]:
    """The folders ``parent/<env>/<name>`` for which ``is_one`` holds, without hidden ones."""
    return sorted(path for path in parent.glob("*/[!.]*") if is_plain(str(path)) and is_one(path))


class FolderKind(NamedTuple):
    """What distinguishes runs from studies."""

    one: str
    many: str
    start: str  # how to start the first one
    is_one: Callable[[Path], bool]
    started: Callable[[Path], Any]  # when it was started; the latest is last


def find_folder(text: str, parent: Path, kind: FolderKind) -> Path:
    """The folder that ``text`` means: a path, ``<name>``, ``<env>/<name>`` or ``<name>/seed-<i>`` in ``parent``, or
    ``last``. Raises ``CheckpointError`` if none fits, or if several do."""
    if not is_plain(text):  # a terminal would execute them
        raise CheckpointError(f"{shown(text, max_length=300)} contains control characters: rename the folder.")
    known = known_folders(parent, kind.is_one)
    if text == "last":
        if not known:
            raise CheckpointError(f"There is no {kind.one} in {parent}: {kind.start}.")
        return max(known, key=kind.started)
    for path in (Path(text), parent / text):
        if text and kind.is_one(path):
            return path
    matches = [path for path in known if path.name == text] or [
        part for path in known for part in seed_run_dirs(path) if f"{path.name}/{part.name}" == text
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(str(path.relative_to(parent)) for path in matches)
        raise CheckpointError(
            f"The name {text!r} fits {len(matches)} {kind.many}: {listed}. Add the environment, as in <env>/{text}."
        )
    newest = f" The newest (last) is {max(known, key=kind.started).relative_to(parent)}." if known else ""
    names = {"last", *(path.name for path in known), *(str(path.relative_to(parent)) for path in known)}
    raise CheckpointError(
        f"No {kind.one} {text!r}: looked for one at that path, and for that name among the {len(known)} {kind.many} in "
        f"{parent}{nearest(text, names)}.{newest}"
    )
