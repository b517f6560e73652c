"""Measure the time of `proximo train gymnax:CartPole-v1`, or of another command, until it prints its result, by parts, and its peak memory.

    python benchmarks/startup.py [--starts 4] [ENV --SETTING VALUE ...]

Fresh processes use a separate compilation cache: the first start fills it, and later ones read it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

PARTS = """
import time, sys; t = [time.perf_counter()]
import proximo, proximo.training, proximo.cli.training_reporters; t.append(time.perf_counter())
from proximo.envs.jax import gymnax; gymnax.names(); t.append(time.perf_counter())
print("PARTS", t[1] - t[0], t[2] - t[1], file=sys.stderr)
"""


def start(folder: str, words: list[str]) -> dict:
    """One start: wall seconds, peak memory in MB, and what the training reports."""
    environment = {**os.environ, "PROXIMO_CACHE_DIR": f"{folder}/cache"}
    command = [sys.executable, "-m", "proximo", "train", *words, "--json", "--runs-dir", f"{folder}/runs"]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    scale = 1 if sys.platform == "darwin" else 1024
    said = json.loads(output.strip().splitlines()[-1])
    kept = {name: said[name] or 0.0 for name in ("seconds", "compile_seconds", "steps", "return_mean")}
    return {"wall_seconds": wall, "peak_megabytes": usage.ru_maxrss * scale / 1e6, **kept}


def imports() -> tuple[float, float]:
    """Seconds to import proximo (with JAX and Equinox) and gymnax."""
    done = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, text=True, check=True)
    own, gymnax = done.stderr.split("PARTS")[1].split()
    return float(own), float(gymnax)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=4)
    options, words = parser.parse_known_args()
    words = words or ["gymnax:CartPole-v1"]
    with tempfile.TemporaryDirectory() as folder:
        rows = [start(folder, words) for _ in range(options.starts)]
    own, gymnax = imports()
    for number, row in enumerate(rows, 1):
        print(f"start {number}: " + ", ".join(f"{name} {value:.2f}" for name, value in row.items()))
    later = {name: statistics.median(row[name] for row in rows[1:]) for name in rows[0]}
    rest = later["wall_seconds"] - later["seconds"] - later["compile_seconds"] - own - gymnax
    print(
        f"second start: {later['wall_seconds']:.1f} s = imports {own:.1f} + gymnax {gymnax:.1f} + tracing and loading "
        f"{later['compile_seconds']:.1f} + training {later['seconds']:.1f} + evaluations, files, end {rest:.1f}; "
        f"peak memory {max(row['peak_megabytes'] for row in rows):.0f} MB; this script itself "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main()
