"""The learner: ``update(state, rollout) -> (state, metrics)``."""

from proximo.ppo.algorithm import init_learner, update
from proximo.ppo.hyperparameters import Hyperparameters, make_hyperparameters
from proximo.ppo.minibatches import Minibatch
from proximo.ppo.state import LearnerState

__all__ = ["Hyperparameters", "LearnerState", "Minibatch", "init_learner", "make_hyperparameters", "update"]
