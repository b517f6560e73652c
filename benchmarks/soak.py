"""Trains for an hour and measures what must not grow: resident memory, open file descriptors and threads of all processes.

    python benchmarks/soak.py --minutes 60      # one case after the other; --case NAME runs one of them

Each case is a real ``proximo train`` with evaluations and checkpoints, ended by SIGTERM. The memory's slope is a least-squares
line over the samples after ``WARM_UP_MINUTES``. Results: ``benchmarks/results/soak.json``.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np

import proximo

CASES = {
    "CartPole-v1 with two workers": ["CartPole-v1", "--num-workers", "2", "--eval-every", "400_000"],
    "gymnax:CartPole-v1": ["gymnax:CartPole-v1", "--eval-every", "5_000_000"],
}
ENDLESS = ["--total-steps", "100_000_000_000", "--video-every", "0"]
SAMPLE_SECONDS = 10.0
WARM_UP_MINUTES = 10.0
RESULTS = Path(__file__).parent / "results" / "soak.json"


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        children += map(int, (task / "children").read_text().split())
    return [pid, *(one for child in children for one in family(child))]


def sample(pid: int) -> dict[str, float]:
    """Memory (proportional share, so that shared pages count once; MB), descriptors and threads of a process and its descendants."""
    total = {"memory_mb": 0.0, "descriptors": 0, "threads": 0, "processes": 0}
    for one in family(pid):
        rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
        total["memory_mb"] += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024
        total["descriptors"] += len(os.listdir(f"/proc/{one}/fd"))
        total["threads"] += len(os.listdir(f"/proc/{one}/task"))
        total["processes"] += 1
    return total


def soak(name: str, minutes: float) -> dict:
    """Run a case and return what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "proximo", "train", *CASES[name], *ENDLESS, "--runs-dir", folder]
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started, samples = time.monotonic(), []
        while (elapsed := time.monotonic() - started) < 60 * minutes:
            time.sleep(SAMPLE_SECONDS)
            if process.poll() is not None:
                raise SystemExit(f"{name}: the training ended after {elapsed:.0f} s with exit code {process.returncode}.")
            try:
                samples.append({"minute": (time.monotonic() - started) / 60, **sample(process.pid)})
            except (FileNotFoundError, ProcessLookupError):  # a process ended while it was read
                continue
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=120)
        rows = [json.loads(line) for line in next(Path(folder).glob("*/*/metrics.jsonl")).read_text().splitlines()]
    steady = [s for s in samples if s["minute"] > WARM_UP_MINUTES]
    slope, _ = np.polyfit([s["minute"] for s in steady], [s["memory_mb"] for s in steady], 1)
    return {
        "command": f"proximo train {' '.join([*CASES[name], *ENDLESS])}",
        "minutes": minutes,
        "steps": rows[-1]["step"],
        "exit_code": code,
        "memory_mb_per_minute": round(float(slope), 3),
        "memory_mb": [round(s["memory_mb"], 1) for s in steady[:: max(1, len(steady) // 20)]],
        **{what: sorted({s[what] for s in steady}) for what in ("descriptors", "threads", "processes")},
    }


def main() -> None:
    """Run the cases that are asked for and keep the others' results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="one of the cases; again for more")
    arguments = parser.parse_args()
    for name in arguments.case or CASES:
        result = soak(name, arguments.minutes)
        print(json.dumps({name: result}, indent=1), flush=True)
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"script": "benchmarks/soak.py", "cases": {}}
        known["cases"][name] = {
            "date": date.today().isoformat(), "proximo": proximo.__version__, "machine": platform.processor() or platform.machine(),
            "cores": os.cpu_count(), **result,
        }  # fmt: skip
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
