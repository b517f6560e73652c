"""Callbacks that save to a folder of the user: the whole training state, or videos."""

from __future__ import annotations

import os
from pathlib import Path

from proximo.errors import ConfigError, shown
from proximo.rendering.watching import check_max_steps, film
from proximo.training.callbacks import Evaluation, Info


class Checkpoints:
    """Saves a run directory ``folder/<step>`` at regular intervals. ``proximo.load`` and all commands accept it.

        proximo.train("CartPole-v1", callbacks=[Checkpoints("models/cartpole", every=50)])

    With several seeds, each seed saves to ``folder/seed-<i>/<step>``.

    Args:
        folder: where to save; not the working folder.
        every: updates between two saves, 1 or more.

    Raises:
        ConfigError: ``folder`` is not a path, or is the working folder.
    """

    def __init__(self, folder: str | Path, every: int = 1):
        self.folder, self.every = _absolute(folder), every

    def on_update(self, info: Info) -> None:
        """Save the state of ``info``."""
        info.save(_seed_folder(self.folder, info) / str(info.step))


class BestModel:
    """Saves a run directory ``folder`` after each evaluation that is the best so far. With several seeds, each seed saves to ``folder/seed-<i>``.

        proximo.train("CartPole-v1", callbacks=[BestModel("models/best")])

    Args:
        folder: where to save; not the working folder.

    Raises:
        ConfigError: ``folder`` is not a path, or is the working folder.
    """

    def __init__(self, folder: str | Path):
        self.folder = _absolute(folder)

    def on_evaluation(self, result: Evaluation) -> None:
        """Save the state of ``result`` if it is the best so far."""
        if result.is_best:
            result.save(_seed_folder(self.folder, result))


class Video:
    """Records one greedy episode to ``folder/<step>.mp4`` at regular intervals. Training waits for it.

        proximo.train("CartPole-v1", callbacks=[Video("videos", every=100)])

    With several seeds, each seed records to ``folder/seed-<i>/<step>.mp4``. For clips that are encoded while training continues, use the setting
    ``video_every``.

    Args:
        folder: where to write; not the working folder.
        every: updates between two videos, 1 or more.
        max_steps: maximum number of steps of a video.

    Raises:
        ConfigError: ``folder`` is not a path, or is the working folder; or ``max_steps`` is not a whole number, 1 or more.
    """

    def __init__(self, folder: str | Path, every: int = 1, max_steps: int = 1000):
        check_max_steps(max_steps)
        self.folder, self.every, self.max_steps = _absolute(folder), every, max_steps

    def on_update(self, info: Info) -> None:
        """Record an episode of the policy of ``info``."""
        film(info.policy, _seed_folder(self.folder, info) / f"{info.step}.mp4", max_steps=self.max_steps)


def _absolute(folder: str | Path) -> Path:
    """``folder`` as an absolute path, because an environment may change the working folder. Raises ``ConfigError`` if
    it is not a path, or is the working folder."""
    if not isinstance(folder, str | os.PathLike):
        raise ConfigError(f"folder = {shown(folder)}: expected a path, for example 'models'.")
    if Path(folder).absolute() == Path.cwd():
        raise ConfigError(f"folder = {str(folder)!r}: expected another folder than the working folder, for example 'models'.")
    return Path(folder).absolute()


def _seed_folder(folder: Path, info: Info) -> Path:
    """The folder of a seed: ``folder`` itself, or ``folder/seed-<i>`` if the training has several seeds."""
    return folder / f"seed-{info.seed}" if info.is_one_of_several else folder
