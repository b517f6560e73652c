"""Time of a step with JAX, ONNX Runtime and NumPy, each as a user calls it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from proximo.export.parity import Runner, random_inputs
from proximo.export.policy_function import EPISODE_START, NEXT, REWARD, Arrays, PolicyFunction

SIZES = (1, 64)
BUDGET, MAX_CALLS = 0.04, 100
"""Maximum seconds and maximum number of calls of each measurement."""
ROUNDS = 3
"""Each runner is measured this often, in turn with the others: other work of the machine that slows one round does not count."""


def median_microseconds(call: Callable[[], object]) -> float:
    """Median time of a call, after three calls to warm up."""
    for _ in range(3):
        call()
    taken: list[float] = []
    end = time.perf_counter() + BUDGET
    while len(taken) < 5 or (len(taken) < MAX_CALLS and time.perf_counter() < end):
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
        steps = {"jax": _predict_step(policy_function, inputs, n)} if policy_function.deterministic else {}
        steps |= {name: _runner_step(policy_function, runner, inputs, n) for name, runner in runners.items()}
        rounds = [{name: median_microseconds(step) for name, step in steps.items()} for _ in range(ROUNDS)]
        found[str(n)] = {name: float(np.median([one[name] for one in rounds])) for name in steps}
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
