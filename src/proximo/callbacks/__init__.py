"""Callbacks for ``proximo.train(..., callbacks=[...])`` and ``PPO.learn``; how to write one: ``proximo.run.callbacks``."""

from proximo.callbacks.checkpoints import BestModel, Checkpoints
from proximo.callbacks.early_stopping import EarlyStopping
from proximo.callbacks.learning_rate_finder import LearningRateFinder
from proximo.callbacks.video import Video
from proximo.run.callbacks import Evaluation, Info

__all__ = ["BestModel", "Checkpoints", "EarlyStopping", "Evaluation", "Info", "LearningRateFinder", "Video"]
