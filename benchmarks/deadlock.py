"""Measure how often JAX's CPU runtime hangs with each remedy.

    python benchmarks/deadlock.py --processes 20          # the known trigger, fresh processes, every remedy
    python benchmarks/deadlock.py --soak 200              # short trainings of proximo in fresh processes

A process counts as hung when it has not ended after the time limit although it needs a second of work; it is killed.
The trigger is a vmapped initialisation with several orthogonal matrices (QR inside a parallel loop).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

TRIGGER = """
import jax, jax.numpy as jnp
{prepare}
orthogonal = jax.nn.initializers.orthogonal()
def init(key):
    keys = jax.random.split(key, 6)
    return [orthogonal(k, (128, 128)) for k in keys]
def work(x):
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ x), None), jnp.ones((8, 128, 128)), None, length=50)[0]
for seed in range(3):
    out = jax.jit(jax.vmap(init))(jax.vmap(jax.random.key)(jnp.arange(8) + seed))
    jax.block_until_ready(jax.jit(work)(out[0][0]))
"""
REMEDIES = {
    "none": ({}, ""),
    "async dispatch off (jax.config)": ({}, 'jax.config.update("jax_cpu_enable_async_dispatch", False)'),
    "JAX_CPU_ENABLE_ASYNC_DISPATCH=false": ({"JAX_CPU_ENABLE_ASYNC_DISPATCH": "false"}, ""),
    "NPROC=4": ({"NPROC": "4"}, ""),
    "no multi-threaded Eigen": ({"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}, ""),
    "no concurrency-optimized scheduler": ({"XLA_FLAGS": "--xla_cpu_enable_concurrency_optimized_scheduler=false"}, ""),
}
TRAINING = [
    sys.executable, "-m", "proximo", "train", "proximo:PocMemory", "--no-preset", "--memory", "gru", "--memory-size", "32",
    "--num-envs", "16", "--num-steps", "32", "--total-steps", "4096", "--eval-episodes", "8", "--quiet", "--no-tensorboard",
]  # fmt: skip


def run(command: list[str], environment: dict[str, str], limit: float) -> float | None:
    """Seconds that the command took; None when it hung and was killed. Raises when it failed."""
    started = time.monotonic()
    try:
        subprocess.run(command, env={**os.environ, **environment}, timeout=limit, check=True, capture_output=True)
    except subprocess.TimeoutExpired:
        return None
    return time.monotonic() - started


def repeat(name: str, command: list[str], environment: dict[str, str], count: int, limit: float) -> dict:
    """Run the command ``count`` times, one after the other."""
    times = [run(command, environment, limit) for _ in range(count)]
    done = sorted(t for t in times if t is not None)
    result = {
        "name": name,
        "processes": count,
        "hung": times.count(None),
        "median_seconds": done[len(done) // 2] if done else None,
    }
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--soak", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--runs-dir", default="runs-soak")
    options = parser.parse_args()
    for name, (environment, prepare) in REMEDIES.items() if options.processes else ():
        repeat(name, [sys.executable, "-c", TRIGGER.format(prepare=prepare)], environment, options.processes, options.limit)
    if options.soak:
        command = [*TRAINING, "--runs-dir", options.runs_dir]
        if repeat("proximo train", command, {}, options.soak, options.limit)["hung"]:
            sys.exit(1)


if __name__ == "__main__":
    main()
