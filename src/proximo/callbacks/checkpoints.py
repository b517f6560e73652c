"""Callbacks that save the whole training state to a folder, in addition to the checkpoints of a run."""

from __future__ import annotations

from pathlib import Path

from proximo.errors import ConfigError
from proximo.training.callbacks import Evaluation, Info


class Checkpoints:
    """Saves a run directory ``folder/<step>`` at regular intervals. ``proximo.load`` and all commands accept it.

        proximo.train("CartPole-v1", callbacks=[Checkpoints("models/cartpole", every=50)])

    With several seeds, each seed saves to ``folder/seed-<i>/<step>``.

    Args:
        folder: where to save; not the working folder.
        every: updates between two saves, 1 or more.

    Raises:
        ConfigError: ``folder`` is the working folder.
    """

    def __init__(self, folder: str | Path, every: int = 1):
        self.folder, self.every = absolute_folder(folder), every

    def on_update(self, info: Info) -> None:
        """Save the state of ``info``."""
        info.save(seed_folder(self.folder, info) / str(info.step))


class BestModel:
    """Saves a run directory ``folder`` after each evaluation that is the best so far. With several seeds, each seed saves to ``folder/seed-<i>``.

        proximo.train("CartPole-v1", callbacks=[BestModel("models/best")])

    Args:
        folder: where to save; not the working folder.

    Raises:
        ConfigError: ``folder`` is the working folder.
    """

    def __init__(self, folder: str | Path):
        self.folder = absolute_folder(folder)

    def on_evaluation(self, result: Evaluation) -> None:
        """Save the state of ``result`` if it is the best so far."""
        if result.is_best:
            result.save(seed_folder(self.folder, result))


def absolute_folder(folder: str | Path) -> Path:
    """``folder`` as an absolute path, because an environment may change the working folder. Raises a ``ConfigError`` for the working folder."""
    if str(folder) in ("", "."):
        raise ConfigError(f"folder = {str(folder)!r}: expected another folder than the working folder, for example 'models'.")
    return Path(folder).absolute()


def seed_folder(folder: Path, info: Info) -> Path:
    """The folder of a seed: ``folder`` itself, or ``folder/seed-<i>`` if the training has several seeds."""
    return folder / f"seed-{info.seed}" if info.is_one_of_several else folder
