"""Time of a step with JAX and with ONNX Runtime, as a user calls them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from proximo.export.parity import random_inputs
from proximo.export.policy_function import EPISODE_START, REWARD, PolicyFunction
from proximo.spaces import OBSERVATION

SIZES, CALLS = (1, 64), 50


def measure(policy_function: PolicyFunction, exported: Any, sizes: tuple[int, ...] = SIZES) -> dict[str, dict[str, float]]:
    """Median microseconds of ``predict``, of the policy in JAX and of its export, by number of environments."""
    found: dict[str, dict[str, float]] = {}
    for n in sizes:
        inputs = random_inputs(policy_function, np.random.default_rng(0), n, begins=False)
        observation = policy_function.as_tree({**policy_function.inputs(n), **inputs})[OBSERVATION]
        step = {"observation": observation, "episode_start": inputs[EPISODE_START], "reward": inputs.get(REWARD)}
        policies = {"jax": policy_function.policy, "onnxruntime": exported}
        found[str(n)] = {name: _microseconds(policy, policy.init_memory(n), step) for name, policy in policies.items()}
    return found


def _microseconds(policy: Any, memory: Any, step: dict[str, Any]) -> float:
    taken = []
    for _ in range(CALLS):  # the first one compiles, which the median ignores
        started = time.perf_counter()
        _, memory = policy.predict(memory=memory, **step)
        taken.append(time.perf_counter() - started)
    return float(np.median(taken)) * 1e6
