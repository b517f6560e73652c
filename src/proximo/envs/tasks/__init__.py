"""Tasks that proximo ships, as JAX environments."""

from proximo.envs.tasks.poc_memory import PocMemory

TASKS = {"PocMemory": PocMemory}

__all__ = ["TASKS", "PocMemory"]
