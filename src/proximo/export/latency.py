"""Time of a step with JAX, ONNX Runtime and NumPy, each as a user calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from proximo.export.parity import Runner, random_inputs
from proximo.export.policy_function import EPISODE_START, NEXT, REWARD, Arrays, PolicyFunction

SIZES = (1, 64)
BUDGET, MAX_CALLS = 0.12, 300
"""Maximum seconds and maximum number of calls of each measurement."""


def median_microseconds(call: Callable[[], object], budget: float = BUDGET, max_calls: int = MAX_CALLS) -> float:
    """Median time of a call, after three calls to warm up."""
    for _ in range(3):
        call()
    taken: list[float] = []
    end = time.perf_counter() + budget
    while len(taken) < 5 or (len(taken) < max_calls and time.perf_counter() < end):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return float(np.median(taken)) * 1e6


def measure(
    policy_function: PolicyFunction, runners: Mapping[str, Runner], sizes: tuple[int, ...] = SIZES
) -> dict[str, dict[str, float]]:
    """Microseconds per step by number of environments and runner. The runner ``jax`` is ``Policy.predict``; it is omitted if actions are
    sampled."""
    found: dict[str, dict[str, float]] = {}
    for n in sizes:
        inputs = random_inputs(policy_function, np.random.default_rng(0), n, begins=False)
        found[str(n)] = {}
        if policy_function.deterministic:
            found[str(n)]["jax"] = median_microseconds(_predict_step(policy_function, inputs, n))
        for name, runner in runners.items():
            found[str(n)][name] = median_microseconds(_runner_step(policy_function, runner, inputs, n))
    return found


def _predict_step(policy_function: PolicyFunction, inputs: Arrays, n: int) -> Callable[[], object]:
    observation = policy_function.observation_of(inputs)
    policy, memory = policy_function.policy, policy_function.policy.init_memory(n)

    def step() -> None:
        nonlocal memory
        _, memory = policy.predict(observation, memory, inputs[EPISODE_START], reward=inputs.get(REWARD))

    return step


def _runner_step(policy_function: PolicyFunction, runner: Runner, inputs: Arrays, n: int) -> Callable[[], object]:
    memory = {name: np.asarray(x) for name, x in policy_function.init_memory(n).items()}

    def step() -> None:
        nonlocal memory
        outputs = runner({**inputs, **memory})
        memory = {name: outputs[name + NEXT] for name in memory}

    return step
