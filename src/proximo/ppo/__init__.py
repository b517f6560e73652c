"""The learner: ``update(state, rollout) -> (state, metrics)``."""

from proximo.ppo.algorithm import update
from proximo.ppo.initialization import init_learner
from proximo.ppo.minibatches import Minibatch
from proximo.ppo.state import LearnerState, make_hyperparameters

__all__ = ["LearnerState", "Minibatch", "init_learner", "make_hyperparameters", "update"]
