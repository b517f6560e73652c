"""The time of `proximo train`, from the shell's command until the process ends, and its peak memory: with an empty cache and with a filled one.

    python benchmarks/startup.py [--rounds 3] [--rows NAME …] [--before ../old/src]

Every round starts with an empty compilation cache: its first start fills the cache, and the second reads it. With ``--before``, another
checkout's ``src`` is measured in the same rounds, in turn. Results go to results/startup.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measurements import circumstances

RESULTS = Path(__file__).parent / "results" / "startup.json"
SOURCE = Path(__file__).parents[1] / "src"
UNTIL_UPDATE = ("--total-updates", "1", "--eval-episodes", "0")
ROWS = {
    "gymnax:CartPole-v1": ("gymnax:CartPole-v1",),
    "HalfCheetah-v5, one update": ("HalfCheetah-v5", *UNTIL_UPDATE),
    "LunarLander-v3, one update": ("LunarLander-v3", *UNTIL_UPDATE),
}
PARTS = """
import time, sys; t = [time.perf_counter()]
import proximo, proximo.training, proximo.cli.training_reporters; t.append(time.perf_counter())
from proximo.envs.jax import gymnax; gymnax.names(); t.append(time.perf_counter())
print("PARTS", t[1] - t[0], t[2] - t[1], file=sys.stderr)
"""


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


def imports(source: Path) -> dict[str, float]:
    """Seconds to import proximo (with JAX and Equinox), and to import gymnax after it."""
    done = subprocess.run(
        [sys.executable, "-c", PARTS], capture_output=True, text=True, check=True, env=environment(source, "unused")
    )
    own, gymnax = done.stderr.split("PARTS")[1].split()
    return {"proximo": round(float(own), 2), "gymnax": round(float(gymnax), 2)}


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--before", type=Path, metavar="SRC", help="the folder src of another checkout")
    options = parser.parse_args()
    sources = {"now": SOURCE, **({"before": options.before.resolve()} if options.before else {})}
    starts = {(row, version, which): [] for row in options.rows for version in sources for which in ("first", "second")}
    for _ in range(options.rounds):
        for row in options.rows:
            for version, source in sources.items():
                with tempfile.TemporaryDirectory() as folder:
                    for which in ("first", "second"):
                        starts[row, version, which].append(start(source, folder, ROWS[row]))
    rows = {}
    for (row, version, which), measured in starts.items():
        medians = {name: round(statistics.median(one[name] for one in measured), 2) for name in measured[0]}
        rows.setdefault(row, {}).setdefault(version, {})[which] = {"median": medians, "starts": measured}
        walls = " ".join(f"{one['wall_seconds']:.1f}" for one in measured)
        print(f"{row}, {version}, {which} start: {medians['wall_seconds']:.1f} s ({walls}), {medians}")
    record = {**circumstances(), "script": "benchmarks/startup.py", "import_seconds": imports(SOURCE), "rows": rows}
    print(f"imports: {record['import_seconds']}")
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
