"""Training speed of CleanRL's own script for continuous actions, `ppo_continuous_action.py`: one JSON line.

    python benchmarks/peers/cleanrl.py --repo CHECKOUT --env HalfCheetah-v4 --num-envs 1 --num-steps 2048 --batch-size 64 --epochs 10 \
        --threads 1 --seconds 20

To be run in a separate virtual environment (README.md). The script runs unchanged, with its own defaults beside the settings that are given,
and without its value clip. It is timed from the first line that it prints after an update until --seconds are over, and is then ended, so
neither its start nor its first update counts.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from host_arguments import host_parser


def main() -> None:
    parser = host_parser(__doc__ or "")
    parser.add_argument("--repo", type=Path, required=True, help="a clone of CleanRL")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    if options.memory:
        parser.error("--memory: the memory of CleanRL's script is not measured")
    rows = options.num_envs * options.num_steps
    settings = {
        "env-id": options.env,
        "num-envs": options.num_envs,
        "num-steps": options.num_steps,
        "num-minibatches": rows // options.batch_size,
        "update-epochs": options.epochs,
        "seed": options.seed,
        "total-timesteps": 10**9,  # more than it will take: it is ended before
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    rates, returns = [], []
    for _ in range(options.repeats):
        updates, seconds, returns = timed([*words, "--no-clip-vloss", "--no-cuda"], options)
        rates.append(round(updates * rows / seconds, 1))
    line = {
        "peer": f"CleanRL, {options.threads} thread{'s' if options.threads > 1 else ''}",
        "versions": {p: importlib.metadata.version(p) for p in ("torch", "gymnasium", "mujoco", "numpy")}
        | {"python": platform.python_version()},
        "settings": {name: value for name, value in vars(options).items() if name != "repo"},
        "steps_per_second": rates,
        "return_mean_last": sum(returns) / len(returns) if returns else None,
    }
    print(json.dumps(line), flush=True)


def timed(words: list[str], options: argparse.Namespace) -> tuple[int, float, list[float]]:
    """Updates after the first one, the seconds that they took, and the last five returns."""
    threads = {name: str(options.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [sys.executable, "-u", str(options.repo.resolve() / "cleanrl/ppo_continuous_action.py"), *words]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:  # it writes its event files there
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder, env={**os.environ, **threads}
        )
        try:
            times, returns = watched(process, options.seconds)
        finally:
            process.kill()
            process.wait()
        if not times or times[-1] - times[0] < options.seconds:
            errors.seek(0)
            sys.exit(f"CleanRL's script ended after {len(times)} updates:\n{errors.read()[-2000:]}")
    return len(times) - 1, times[-1] - times[0], returns[-5:]


def watched(process: subprocess.Popen[str], seconds: float) -> tuple[list[float], list[float]]:
    """When each update ended, until ``seconds`` after the first one or until the program ends, and the returns of the episodes."""
    times, returns = [], []
    for line in process.stdout or ():
        if match := re.search(r"episodic_return=\[?(-?[\d.]+)", line):
            returns.append(float(match[1]))
        if line.startswith("SPS:"):
            times.append(time.perf_counter())
            if times[-1] - times[0] >= seconds:
                break
    return times, returns


if __name__ == "__main__":
    main()
