"""How long a step takes: JAX, ONNX Runtime and NumPy, each as a user calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import jax
import numpy as np

from proximo.export.acting import FIRST, NEXT, OBSERVATION, Acting
from proximo.export.parity import Runner, random_row
from proximo.run.checkpoint import flatten
from proximo.spaces import PREVIOUS_REWARD

SIZES = (1, 64)
BUDGET, MOST_CALLS = 0.12, 300
"""Seconds and calls for each figure."""


def median_microseconds(call: Callable[[], object], budget: float = BUDGET, most: int = MOST_CALLS) -> float:
    """The median of many calls, after some that do not count."""
    for _ in range(3):
        call()
    taken: list[float] = []
    end = time.perf_counter() + budget
    while len(taken) < 5 or (len(taken) < most and time.perf_counter() < end):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return float(np.median(taken)) * 1e6


def measure(acting: Acting, runners: Mapping[str, Runner], sizes: tuple[int, ...] = SIZES) -> dict[str, dict[str, float]]:
    """Microseconds of a step by number of environments and runner; ``jax`` is ``policy(memory, observation, first)``, where
    nothing is sampled."""
    found: dict[str, dict[str, float]] = {}
    for n in sizes:
        row = random_row(acting, np.random.default_rng(0), n, begins=False)
        found[str(n)] = {} if acting.stochastic else {"jax": median_microseconds(_jax_step(acting, row, n))}
        for name, runner in runners.items():
            found[str(n)][name] = median_microseconds(_step(acting, runner, row, n))
    return found


def _jax_step(acting: Acting, row: dict, n: int) -> Callable[[], object]:
    template = acting.observation(n)
    observation = jax.tree.unflatten(jax.tree.structure(template), [row[name] for name in flatten({OBSERVATION: template})])
    memory, first, reward = [acting.policy.init_memory(n)], row[FIRST], row.get(PREVIOUS_REWARD, np.zeros(n))

    def step() -> None:
        memory[0], _ = acting.policy(memory[0], observation, first, reward)

    return step


def _step(acting: Acting, runner: Runner, row: dict, n: int) -> Callable[[], object]:
    carried = {name: np.asarray(x) for name, x in acting.initial(n).items() if name in acting.carried}
    held = [carried]

    def step() -> None:
        outputs = runner({**row, **held[0]})
        held[0] = {name: outputs[name + NEXT] for name in carried}

    return step
