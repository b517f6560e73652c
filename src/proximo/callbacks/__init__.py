"""Callbacks for ``proximo.train(..., callbacks=[...])`` and ``PPO.learn``. ``proximo.training.callbacks`` explains how to write one."""

from proximo.callbacks.early_stopping import EarlyStopping
from proximo.callbacks.saving import BestModel, Checkpoints, Video
from proximo.training.callbacks import Evaluation, Info

__all__ = ["BestModel", "Checkpoints", "EarlyStopping", "Evaluation", "Info", "Video"]
