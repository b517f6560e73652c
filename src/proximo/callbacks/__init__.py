"""Callbacks for ``proximo.train(..., callbacks=[...])`` and ``PPO.learn``; how to write one: ``proximo.run.callbacks``."""

from proximo.callbacks.checkpoints import BestModel, Checkpoints
from proximo.callbacks.early_stopping import EarlyStopping
from proximo.callbacks.video import Video

__all__ = ["BestModel", "Checkpoints", "EarlyStopping", "Video"]
