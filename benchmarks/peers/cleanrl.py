"""Training speed of CleanRL's own script for continuous actions, `ppo_continuous_action.py`: one JSON line.

    python benchmarks/peers/cleanrl.py --repo CHECKOUT --env HalfCheetah-v4 --num-envs 1 --num-steps 2048 --batch-size 64 --epochs 10 \
        --threads 1 --seconds 20

To be run in an environment of its own (README.md). The script runs unchanged, with its own defaults beside the settings that are given,
and without its value clip. It is timed from the first line that it prints after an update until --seconds are over, and is then ended, so
neither its start nor its first update counts.
"""

from __future__ import annotations

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

AFTER_UPDATE = "SPS:"


def main() -> None:
    parser = host_parser(__doc__ or "")
    parser.add_argument("--repo", type=Path, required=True, help="a clone of CleanRL")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
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


def timed(words: list[str], options) -> tuple[int, float, list[float]]:
    """Updates after the first one, the seconds that they took, and the last five returns."""
    threads = {name: str(options.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    script = options.repo.resolve() / "cleanrl/ppo_continuous_action.py"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:  # it writes its event files there
        process = subprocess.Popen(
            [sys.executable, "-u", str(script), *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={**os.environ, **threads},
        )
        assert process.stdout is not None
        begun, updates, returns = 0.0, 0, []
        try:
            for line in process.stdout:
                if match := re.search(r"episodic_return=\[?(-?[\d.]+)", line):
                    returns.append(float(match[1]))
                elif line.startswith(AFTER_UPDATE):
                    now = time.perf_counter()
                    if not begun:
                        begun = now
                    else:
                        updates += 1
                        if now - begun >= options.seconds:
                            return updates, now - begun, returns[-5:]
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        sys.exit(f"CleanRL's script ended after {updates} updates:\n{errors.read()[-2000:]}")


if __name__ == "__main__":
    main()
