"""The zoo: trained policies that ship with proximo, as published folders. A user names them ``zoo:NAME``."""

from pathlib import Path

from proximo.errors import CheckpointError, nearest
from proximo.storage.named_folders import is_run

PREFIX = "zoo:"
FOLDER = Path(__file__).parents[1] / "zoo"


def names() -> list[str]:
    """``zoo:NAME`` of every policy."""
    return sorted(PREFIX + path.name for path in FOLDER.glob("*") if is_run(path))


def find(text: str) -> Path | None:
    """The folder of ``zoo:NAME``. None for any other text. Raises ``CheckpointError`` for an unknown name."""
    if text.startswith(PREFIX) and text not in names():
        raise CheckpointError(f"There is no policy {text}{nearest(text, names())}. The zoo has {', '.join(names())}.")
    return FOLDER / text.removeprefix(PREFIX) if text.startswith(PREFIX) else None


def contains(run_dir: Path) -> bool:
    """Whether ``run_dir`` is the folder of a policy of the zoo."""
    return run_dir.parent == FOLDER


def label(run_dir: Path) -> str:
    """How messages name a run: ``zoo:NAME``, or its path."""
    return PREFIX + run_dir.name if contains(run_dir) else str(run_dir)


def output_folder(run_dir: Path) -> Path:
    """Where files made from a run are written: into it; for the zoo, ``zoo-NAME`` in the working folder."""
    return Path(label(run_dir).replace(":", "-")) if contains(run_dir) else run_dir
