"""A run: the training loop, the run directory, checkpoints, evaluation, sinks."""

from proximo.run.api import Result, resume, train
from proximo.run.policy import Policy, evaluate, load_policy
from proximo.run.settings import make_config

__all__ = ["Policy", "Result", "evaluate", "load_policy", "make_config", "resume", "train"]
