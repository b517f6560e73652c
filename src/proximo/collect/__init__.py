"""How a rollout is collected."""

from proximo.collect.functional import Functions, make_functions
from proximo.collect.gymnasium_collector import GymnasiumCollector
from proximo.collect.gymnasium_trainer import GymnasiumTrainer
from proximo.collect.jax_collector import JaxCollector, make_train

__all__ = ["Functions", "GymnasiumCollector", "GymnasiumTrainer", "JaxCollector", "make_functions", "make_train"]
