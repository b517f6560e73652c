"""A run: the training loop, the run directory, checkpoints, evaluation, sinks."""

from proximo.run.api import Policy, Result, evaluate, load_policy, resume, train
from proximo.run.settings import make_config

__all__ = ["Policy", "Result", "evaluate", "load_policy", "make_config", "resume", "train"]
