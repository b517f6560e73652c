"""Callbacks for ``proximo.train(..., callbacks=[...])`` and ``PPO.learn``. ``proximo.training.callbacks`` explains how to write one."""

import math
import os
from pathlib import Path
from typing import Any

from proximo.errors import ConfigError, is_number, shown
from proximo.evaluation.evaluate import check_number
from proximo.rendering.watching import LONGEST, film
from proximo.training.callbacks import Evaluation, Info

__all__ = ["BestModel", "Checkpoints", "EarlyStopping", "Evaluation", "Info", "Video"]


class EarlyStopping:
    """Stops at a mean return, or after evaluations without improvement. A NaN or infinite mean return counts as the lowest.

        proximo.train("CartPole-v1", callbacks=[EarlyStopping(at=475, patience=20)])

    Args:
        at: stop at the first evaluation with this mean return or more.
        patience: stop after this many evaluations in a row without improvement, 1 or more.
        min_delta: an evaluation improves if its mean return exceeds the best one by more than this, 0 or more.

    Raises:
        ConfigError: neither ``at`` nor ``patience`` is given, or an argument is out of range.
    """

    def __init__(self, at: float | None = None, *, patience: int | None = None, min_delta: float = 0.0):
        if at is None and patience is None:
            raise ConfigError(
                "EarlyStopping: expected at (a mean return to stop at) or patience (evaluations without improvement)."
            )
        if patience is not None:
            check_number("patience", patience, 1, LONGEST)
        if at is not None and (not is_number(at) or math.isnan(at)):
            raise ConfigError(f"EarlyStopping: at = {at!r}: expected a number.")
        if not is_number(min_delta) or not min_delta >= 0:
            raise ConfigError(f"EarlyStopping: min_delta = {min_delta!r}: expected a number, 0 or more.")
        self.at, self.patience, self.min_delta = at, patience, min_delta
        self.best, self.waited = -math.inf, 0

    def on_start(self, info: Info) -> None:
        """Forget an earlier training if a new one begins."""
        if info.step == 0:
            self.best, self.waited = -math.inf, 0

    def on_evaluation(self, result: Evaluation) -> bool:
        """Whether to stop."""
        reached = result.return_mean if math.isfinite(result.return_mean) else -math.inf
        improves = reached > self.best + self.min_delta
        self.best, self.waited = (reached, 0) if improves else (self.best, self.waited + 1)
        return (self.at is not None and reached >= self.at) or (self.patience is not None and self.waited >= self.patience)

    def state_dict(self) -> dict[str, Any]:
        """The best mean return, and the evaluations since, for a checkpoint."""
        return {"best": self.best if math.isfinite(self.best) else None, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self.best = -math.inf if state["best"] is None else state["best"]
        self.waited = state["waited"]


class Checkpoints:
    """Saves a run directory ``folder/<step>`` at regular intervals; of several seeds,
    ``folder/seed-<i>/<step>``. ``proximo.load`` and all commands accept it.

        proximo.train("CartPole-v1", callbacks=[Checkpoints("models/cartpole", every=50)])

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
    """Records one greedy episode to ``folder/<step>.mp4`` at regular intervals; of several seeds, to ``folder/seed-<i>/<step>.mp4``. Training
    waits for it. The setting ``video_every`` also shows clips in TensorBoard.

        proximo.train("CartPole-v1", callbacks=[Video("videos", every=100)])

    Args:
        folder: where to write; not the working folder.
        every: updates between two videos, 1 or more.
        max_steps: maximum number of steps of a video.

    Raises:
        ConfigError: ``folder`` is not a path, or is the working folder; or ``max_steps`` is not a whole number, 1 or more.
    """

    def __init__(self, folder: str | Path, every: int = 1, max_steps: int = 1000):
        check_number("max_steps", max_steps, 1, LONGEST)
        self.folder, self.every, self.max_steps = _absolute(folder), every, max_steps

    def on_update(self, info: Info) -> None:
        """Record an episode of the policy of ``info``."""
        film(info.policy, _seed_folder(self.folder, info) / f"{info.step}.mp4", max_steps=self.max_steps)


def _absolute(folder: str | Path) -> Path:
    """``folder`` as an absolute path, because an environment may change the working folder."""
    if not isinstance(folder, str | os.PathLike) or Path(folder).absolute() == Path.cwd():
        raise ConfigError(
            f"folder = {shown(folder)}: expected the path of a folder, not the working folder: for example 'models'."
        )
    return Path(folder).absolute()


def _seed_folder(folder: Path, info: Info) -> Path:
    """The folder of a seed: ``folder`` itself, or ``folder/seed-<i>`` if the training has several seeds."""
    return folder / f"seed-{info.seed}" if info.is_one_of_several else folder
