"""``proximo:PocMemory``: tasks that proximo ships, as JAX environments."""

from typing import Any

from proximo.envs.protocol import JaxEnvironment
from proximo.envs.tasks.poc_memory import PocMemory
from proximo.envs.tasks.repeat_previous import RepeatPrevious
from proximo.errors import EnvError, nearest

TASKS = {"PocMemory": PocMemory, "RepeatPrevious": RepeatPrevious}

__all__ = ["TASKS", "PocMemory", "RepeatPrevious", "from_name", "names"]


def names() -> list[str]:
    """Return the names of all tasks."""
    return list(TASKS)


def from_name(name: str, settings: dict[str, Any]) -> JaxEnvironment:
    """Make a task.

    Args:
        name: ``PocMemory`` or ``RepeatPrevious``.
        settings: fields of the parameters of the task.

    Raises:
        EnvError: No task has this name.
        ConfigError: The task does not have one of the settings.
    """
    if name not in TASKS:
        raise EnvError(f"proximo has no task {name!r}{nearest(name, TASKS)}; it has {', '.join(TASKS)}.")
    return TASKS[name](settings)
