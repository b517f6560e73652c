"""Whole states in folders of one's choice, beside the checkpoints that a run keeps by itself."""

from __future__ import annotations

from pathlib import Path

from proximo.errors import ConfigError
from proximo.run.callbacks import Evaluation, Info


class Checkpoints:
    """Saves to ``folder/<step>`` behind every ``every`` updates: run directories, which ``proximo.load`` and the command line take. Of several seeds
    each saves to ``folder/seed-<i>/<step>``."""

    def __init__(self, folder: str | Path, every: int = 1):
        self.folder, self.every = chosen(folder), every

    def on_update(self, info: Info) -> None:
        """Save."""
        info.save(place(self.folder, info) / str(info.step))


class BestModel:
    """Saves to ``folder`` behind each evaluation that is better than all before; of several seeds to ``folder/seed-<i>``."""

    def __init__(self, folder: str | Path):
        self.folder = chosen(folder)

    def on_evaluation(self, result: Evaluation) -> None:
        """Save, where it is the best."""
        if result.is_best:
            result.save(place(self.folder, result))


def chosen(folder: str | Path) -> Path:
    """``folder`` as an absolute path, because an environment may change the working folder. Raises ``ConfigError`` for the working folder."""
    if str(folder) in ("", "."):
        raise ConfigError(f"folder = {str(folder)!r}: expected another folder than the working folder, for example 'models'.")
    return Path(folder).absolute()


def place(folder: Path, info: Info) -> Path:
    """Where a seed writes: a folder of its own where there are several."""
    return folder / f"seed-{info.seed}" if info.is_one_of_several else folder
