"""``proximo:PocMemory``: tasks that proximo ships, as JAX environments."""

from typing import Any

from proximo.envs.protocol import JaxEnvironment
from proximo.envs.tasks.poc_memory import PocMemory
from proximo.envs.tasks.repeat_previous import RepeatPrevious

TASKS = {"PocMemory": PocMemory, "RepeatPrevious": RepeatPrevious}


def names() -> list[str]:
    """Return the names of all tasks."""
    return list(TASKS)


def from_name(name: str, settings: dict[str, Any]) -> JaxEnvironment:
    """Make a task; ``settings`` are fields of its parameters."""
    return TASKS[name](settings)
