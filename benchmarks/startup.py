"""The time of `proximo train`, from the shell's command until the process ends, and its peak memory: with an empty cache and with a filled one.

    python benchmarks/startup.py [--rounds 3] [--before ../old/src]

Every round starts with an empty compilation cache: its first start fills the cache, and the second reads it. With ``--before``, another
checkout's ``src`` is measured in the same rounds, in turn. Results go to results/startup.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measurements import circumstances

RESULTS = Path(__file__).parent / "results" / "startup.json"
SOURCE = Path(__file__).parents[1] / "src"
UNTIL_UPDATE = ("--total-updates", "1", "--eval-episodes", "0")
ROWS = {
    "gymnax:CartPole-v1": ("gymnax:CartPole-v1",),
    "HalfCheetah-v5, one update": ("HalfCheetah-v5", *UNTIL_UPDATE),
    "LunarLander-v3, one update": ("LunarLander-v3", *UNTIL_UPDATE),
}


def environment(source: Path, folder: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return {**inherited, "PYTHONPATH": str(source), "PROXIMO_CACHE_DIR": f"{folder}/cache"}


def start(source: Path, folder: str, words: tuple[str, ...]) -> dict[str, float]:
    """One start: wall seconds, peak memory in MB, and what the training reports."""
    command = [sys.executable, "-m", "proximo", "train", *words, "--json", "--runs-dir", f"{folder}/runs"]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(source, folder), text=True
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    scale = 1 if sys.platform == "darwin" else 1024
    said = json.loads(output.strip().splitlines()[-1])
    own = {name: round(said.get(name) or 0.0, 2) for name in ("seconds", "compile_seconds", "evaluation_seconds")}
    return {"wall_seconds": round(wall, 2), "peak_megabytes": round(usage.ru_maxrss * scale / 1e6), **own}


def measure(rounds: int, sources: dict[str, Path]) -> dict[tuple[str, str, str], list[dict[str, float]]]:
    """The starts of every row, version and kind of start, one for each round."""
    starts: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for _, (row, words), (version, source) in itertools.product(range(rounds), ROWS.items(), sources.items()):
        with tempfile.TemporaryDirectory() as folder:
            for which in ("first", "second"):
                starts.setdefault((row, version, which), []).append(start(source, folder, words))
    return starts


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, metavar="SRC", help="the folder src of another checkout")
    options = parser.parse_args()
    sources = {"now": SOURCE, **({"before": options.before.resolve()} if options.before else {})}
    rows: dict[str, Any] = {}
    for (row, version, which), starts in measure(options.rounds, sources).items():
        medians = {name: round(statistics.median(one[name] for one in starts), 2) for name in starts[0]}
        rows.setdefault(row, {}).setdefault(version, {})[which] = {"median": medians, "starts": starts}
        print(f"{row}, {version}, {which} start: {medians}")
    RESULTS.write_text(json.dumps({**circumstances(), "script": "benchmarks/startup.py", "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
