"""Time of a step with JAX and with ONNX Runtime, as a user calls them."""

from __future__ import annotations

import functools
import timeit
from typing import Any

import numpy as np

from proximo.export.parity import random_inputs
from proximo.export.policy_function import EPISODE_START, REWARD, Arrays, PolicyFunction
from proximo.spaces import OBSERVATION

SIZES, CALLS = (1, 64), 50


def measure(function: PolicyFunction, exported: Any, sizes: tuple[int, ...] = SIZES) -> dict[str, dict[str, float]]:
    """Median microseconds of ``predict`` in JAX and by the export, by number of environments."""
    policies, found = {"jax": function.policy, "onnxruntime": exported}, {}
    for n in sizes:
        inputs = {**function.inputs(n), **random_inputs(function, np.random.default_rng(0), n, begins=False)}
        observation = function.as_tree(inputs)[OBSERVATION]
        found[str(n)] = {name: _microseconds(policy, n, observation, inputs) for name, policy in policies.items()}
    return found


def _microseconds(policy: Any, n: int, observation: Any, inputs: Arrays) -> float:
    memory, reward = policy.init_memory(n), inputs.get(REWARD)
    step = functools.partial(policy.predict, observation, memory, inputs[EPISODE_START], reward=reward)
    return (
        float(np.median(timeit.repeat(step, number=1, repeat=CALLS))) * 1e6
    )  # the first call compiles, which the median ignores
