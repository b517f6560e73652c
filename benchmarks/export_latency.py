"""Time of a step of a policy: `Policy.predict` in JAX, and `ExportedPolicy.predict` in ONNX Runtime.

    python benchmarks/export_latency.py            # writes benchmarks/results/export_latency.json

The policies are untrained, which does not change the time: an MLP of 64-64, the same with a GRU of 128 units, and the Nature CNN on
4 × 84 × 84 bytes, for 1 and for 64 environments. Figures are in microseconds: the median of --rounds medians, with the runtimes in turn. ONNX
Runtime uses one thread.
"""

from __future__ import annotations

import argparse
import json
import os

import platform
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import jax
import numpy as np

from proximo import jax_setup
from proximo.config import Config, override
from proximo.export import export
from proximo.export.policy_function import PolicyFunction
from proximo.export.folder import ONNX
from proximo.export.latency import SIZES, measure
from proximo.export.runtime import ExportedPolicy
from proximo.networks import make_policy
from proximo.evaluation.policy import Policy
from proximo.storage.system_info import system_info
from proximo.spaces import from_any

RESULT = Path(__file__).parent / "results" / "export_latency.json"
VECTOR = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
FRAMES = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
POLICIES = {
    "MLP 64-64": (VECTOR, 2, {}),
    "GRU 128": (VECTOR, 2, {"memory": "gru", "memory_size": 128, "towers": "shared"}),
    "Nature CNN": (FRAMES, 6, {"towers": "shared"}),
}


class Spaces:
    """The spaces of an environment, which are all that a policy reads of it."""

    def __init__(self, observation_space: gym.Space, num_actions: int):
        self.observation_space, self.action_space = observation_space, gym.spaces.Discrete(num_actions)


def fresh(space: gym.Space, num_actions: int, settings: dict) -> Policy:
    env = Spaces(space, num_actions)
    config = override(Config(), {"id": "fresh", "normalize_observation": True, **settings})
    spaces = from_any(env.observation_space, "observation"), from_any(env.action_space, "action")
    actor_critic = make_policy(jax.random.key(0), *spaces, config.network, True)
    return Policy(actor_critic, env, config, step=0)  # pyright: ignore[reportArgumentType]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    jax_setup.prepare_jax()
    results: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, recipe in POLICIES.items():
            policy_function = PolicyFunction(fresh(*recipe))
            done = export(policy_function.policy, Path(folder) / name.replace(" ", "-"))
            exported = ExportedPolicy(done.folder / ONNX)
            rounds = [measure(policy_function, exported) for _ in range(options.rounds)]
            medians = {
                str(n): {way: round(statistics.median(r[str(n)][way] for r in rounds), 1) for way in rounds[0][str(n)]}
                for n in SIZES
            }
            results[name] = {"microseconds": medians, "largest_error": done.metadata["parity"]["largest_error"]}
            print(name, json.dumps(medians))
    system = system_info()
    kept = {key: system[key] for key in ("processor", "cpu_count", "python")}
    versions = {package: version(package) for package in ("jax", "numpy", "onnxruntime")}
    content = {
        "command": "python benchmarks/export_latency.py", "rounds": options.rounds, "system": {**kept, "machine": platform.machine()},
        "load": os.getloadavg()[0], "versions": versions, "policies": results,
    }  # fmt: skip
    RESULT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
