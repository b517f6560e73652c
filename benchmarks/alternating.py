"""Programs that are measured in turn, each in a fresh process that prints its speed as a line of JSON."""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
from typing import Any

TIMEOUT = 1800.0


def measure(command: list[str], more_environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON line of one process, with NPROC=4 unless the caller has set it. Exits if the process fails."""
    environment = {"NPROC": "4", **os.environ, **(more_environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def alternate(
    programs: dict[str, list[str]], rounds: int, more_environment: dict[str, str] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """The line of each round of all programs. The order changes, so that a drift of the machine's speed favours none."""
    lines: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    for number in range(rounds):
        for name in list(programs)[:: -1 if number % 2 else 1]:
            lines[name].append(measure(programs[name], more_environment))
            print(f"    round {number + 1}: {name}: {speed_of(lines[name][-1]):,.0f} steps/s", file=sys.stderr, flush=True)
    return lines


def speed_of(line: dict[str, Any]) -> float:
    """The median of the repeats of one process."""
    return statistics.median(line["steps_per_second"])
