"""Tasks that proximo ships, as JAX environments."""

from proximo.envs.tasks.poc_memory import PocMemory
from proximo.envs.tasks.repeat_previous import RepeatPrevious

TASKS = {"PocMemory": PocMemory, "RepeatPrevious": RepeatPrevious}

__all__ = ["TASKS", "PocMemory", "RepeatPrevious"]
