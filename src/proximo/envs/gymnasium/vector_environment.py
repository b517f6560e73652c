"""``VectorEnvironment``: what collectors step. ``WorkerVectorEnvironment`` steps in other processes."""

import contextlib
import itertools
import mmap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from proximo.envs.gymnasium.rollout_buffer import BufferLayout, RolloutBuffer

AUTO = -1
"""``num_workers``: the number follows from a rule (``GymnasiumEnvironment.default_workers``)."""
RESETS = 10
"""A worker may take this many times ``step_timeout`` to make its environments, or for a reset."""
PATIENCE = 10.0
"""Seconds until a message about environments that have not started."""


@dataclass(frozen=True, kw_only=True)
class VectorOptions:
    """How environments are stepped.

    Unless a worker is lost, only ``single_environments`` and ``stagger_steps`` change the transitions.
    """

    num_workers: int = AUTO
    """Worker processes; 0: step in this process; -1: ``GymnasiumEnvironment.default_workers``."""
    single_environments: bool = False
    """Step single environments even if the environment has a vector environment."""
    num_groups: int = 1
    """Groups of environments that step independently; 2 for ``overlap``."""
    stagger_steps: int = 0
    """Truncate first episodes after 1 … this many steps; 0: off."""
    step_timeout: float = 60.0
    """Seconds that a step of a worker may take."""
    max_restarts: int = 100
    """Restarts of lost workers until training stops."""
    cores: int = 1
    """Maximum number of workers if ``num_workers`` is -1, and of the threads of several vector environments. A
    larger ``num_workers`` is a warning."""
    warn: Callable[[str], None] = lambda message: None
    """Receives messages about slow starts, lost workers, and more workers than cores."""

    @property
    def reset_timeout(self) -> float:
        """Seconds that a worker may take to make or reset its environments."""
        return RESETS * self.step_timeout


def split(columns: range, parts: int, unit: int = 1) -> tuple[range, ...]:
    """Split ``columns`` into contiguous parts of whole units, whose sizes differ by at most one unit."""
    boundaries = [columns.start + len(columns) // unit * i // parts * unit for i in range(parts + 1)]
    return tuple(range(a, b) for a, b in itertools.pairwise(boundaries))


class VectorEnvironment:
    """Environments that step into a rollout buffer, in this process. Each fills a column for each of its ``num_agents`` agents.

    They are divided into groups of neighboring columns, which step independently of each other. ``make_stepper(buffer, columns)`` makes
    the stepper of a group.
    """

    num_workers = 0
    """Number of worker processes; 0: environments are stepped in this process."""
    restarts = 0
    """Number of workers that were lost and restarted so far."""

    def __init__(
        self,
        make_stepper: Callable[[RolloutBuffer, range], Any],
        layout: BufferLayout,
        options: VectorOptions,
        description: str,
        num_agents: int = 1,
    ):
        self.description = description
        """Where environments are stepped, in words."""
        self.groups = split(range(layout.num_columns), options.num_groups, num_agents)
        self.stagger_steps = options.stagger_steps
        self.buffer = layout.buffer(mmap.mmap(-1, layout.size))
        self._stepping: dict[int, None] = {}
        """Groups with a step in progress, the oldest first."""
        self.steppers: list[Any] = []
        try:
            for columns in self.groups:
                self.steppers.append(make_stepper(self.buffer, columns))
        except BaseException:
            self.close()
            raise

    def reset(self, seed: int) -> None:
        """Reset all environments into row 0 of the buffer. Each gets its own seed, which depends on ``seed`` and its number."""
        self._stepping.clear()
        for stepper in self.steppers:
            stepper.reset(0, (seed,), self.stagger_steps)

    def send(self, t: int, group: int) -> None:
        """Let a group take step ``t`` with the actions in the buffer."""
        self._stepping[group] = None
        self.steppers[group].send(t)

    def ready(self, groups: list[int]) -> int:
        """Return one of ``groups``, which are all stepping: one that has finished, if possible."""
        return groups[0] if len(groups) == 1 else next(group for group in self._stepping if group in groups)

    def receive(self, t: int, group: int) -> bool:
        """Wait until the group has taken step ``t``. Returns whether the step truncated an episode."""
        any_truncated = self.steppers[group].step(t)
        self._stepping.pop(group, None)
        return any_truncated

    def close(self) -> None:
        """Close all environments and end all processes."""
        for stepper in self.steppers:
            stepper.close()


@contextlib.contextmanager
def reports_waiting(warn: Callable[[str], None], num_envs: int, env_id: str, limit: float = 0.0) -> Iterator[None]:
    """Call ``warn`` from a thread if the environments have not started after ``PATIENCE`` seconds. The message names the ``limit``
    (seconds) after which the start is aborted; 0: there is none."""
    environments = "1 environment" if num_envs == 1 else f"{num_envs} environments"
    until = f"; limit {limit:g} s (ten times step_timeout)" if limit else ""

    def report() -> None:
        with contextlib.suppress(Warning):  # if the user turns warnings into errors
            warn(f"Still waiting for {environments} of {env_id} to start ({PATIENCE:g} s{until}).")

    timer = threading.Timer(PATIENCE, report)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
