"""Speed and memory on Gymnasium environments, compared with Stable-Baselines3, CleanRL and Gymnasium: fresh processes, rounds, medians.

    python benchmarks/host_speed.py --sb3-python VENV/bin/python [--cleanrl-python VENV/bin/python --cleanrl CHECKOUT] \
        [--rows cartpole lunarlander pong halfcheetah halfcheetah8 stepping] [--rounds 3] [--seconds 20] [--out benchmarks/results/host_speed.json]
    python benchmarks/host_speed.py --show         # prints the tables and draws the plot of the file; nothing is measured

For each row, every variant of proximo first runs once, briefly, to fill a separate compilation cache; this is recorded as the first
start. Every mode of the peer also runs once. Then all variants, the peer's fastest mode and modes of similar speed alternate for
--rounds rounds, in changing order; so does CleanRL's fastest mode. Ratios are relative to the peer's mode with the highest median.
Each is the median of the ratios of the rounds. Network, batch, epochs and learning rate are equal, there is no value clip, and compile time is excluded. Programs with
learner_lag=1 are reported separately and meet no mark. The script writes the JSON file and a plot, and prints the tables in Markdown.
benchmarks/peers/README.md explains how to install SB3 and CleanRL.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from host_speed_report import plot, speed_of, tables
from host_speed_rows import CLEANRL, ROWS, Row, Variant

HERE = Path(__file__).parent
TIMEOUT = 1800.0
CLOSE = 0.8
"""A mode of the peer that reaches this share of the fastest one's speed in the first trial runs in all rounds."""
ENVIRONMENTS = ("gymnasium", "numpy", "ale-py", "box2d", "mujoco")
PATHS = {"--sb3-python": "VENV/bin/python", "--cleanrl-python": "VENV/bin/python", "--cleanrl": "CHECKOUT"}
BUSY = 0.1
"""Share of the cores that others may use before a warning."""


def ours_command(row: Row, variant: Variant, seconds: float) -> list[str]:
    """Later arguments win: a variant may name another environment."""
    memory = ["--memory"] if row.memory else []
    given = [*row.setting, *row.common, *memory, "--seconds", str(seconds)]
    return [sys.executable, str(HERE / "ours_host.py"), "--env", row.env, *given, *variant.arguments]


def peer_command(row: Row, name: str, options: argparse.Namespace) -> list[str]:
    given = [*row.setting, *row.peers[name], "--seconds", str(options.seconds)]
    if name in CLEANRL:
        script = [options.cleanrl_python, str(HERE / "peers/cleanrl.py"), "--repo", str(options.cleanrl)]
        return [*script, "--env", row.env.replace("-v5", "-v4"), *given]
    given = ["--env", row.peer_env or row.env, *given]
    if row.stepping:
        return [sys.executable, str(HERE / "peers/gymnasium_vector.py"), *given]
    return [options.sb3_python, str(HERE / "peers/sb3.py"), *given, *(["--memory"] if row.memory else [])]


def busy_share(seconds: float = 1.0) -> float | None:
    """The share of the time of all cores that was used while this process slept; None if /proc does not report it."""

    def read() -> tuple[int, int]:
        numbers = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]  # idle, and waiting for a disk

    if not Path("/proc/stat").exists():
        return None
    whole, idle = read()
    time.sleep(seconds)
    later, later_idle = read()
    return 1.0 - (later_idle - idle) / max(1, later - whole)


class Bench:
    """Runs programs one at a time, and notes how quiet the machine was before each."""

    def __init__(self, cache: str):
        self.environment = {**os.environ, "PROXIMO_CACHE_DIR": cache}
        self.busy: list[float] = []

    def measure(self, label: str, command: list[str]) -> dict[str, Any]:
        """The JSON line of one process."""
        busy = busy_share()
        if busy is not None:
            self.busy.append(round(busy, 3))
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=TIMEOUT)
        if done.returncode:
            sys.exit(f"{shlex.join(command)} failed:\n{done.stderr[-3000:]}")
        line = json.loads(done.stdout.strip().splitlines()[-1])
        noisy = f"  (others used {busy:.0%} of the cores before it)" if busy is not None and busy > BUSY else ""
        more = f", {line['peak_megabytes']:.0f} MB" if "peak_megabytes" in line else ""
        print(f"    {label:<48} {speed_of(line):>10,.0f} steps/s{more}{noisy}", file=sys.stderr, flush=True)
        return line


def run_row(row: Row, options: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    """Measure one row. Return its record for the results file."""
    print(f"{row.title}\n  first starts", file=sys.stderr, flush=True)
    first = {
        name: bench.measure(name, ours_command(row, variant, min(1.0, options.seconds))) for name, variant in row.ours.items()
    }
    print("  modes of the peer", file=sys.stderr, flush=True)
    modes = {
        name: bench.measure(name, peer_command(row, name, options))
        for name in row.peers
        if name not in CLEANRL or options.cleanrl is not None
    }
    check_versions(first, {name: line for name, line in modes.items() if name not in CLEANRL})
    candidates = {name: speed_of(line) for name, line in modes.items() if not row.stepping or name.startswith("Async")}
    of_cleanrl = {name: speed for name, speed in candidates.items() if name in CLEANRL}
    fastest = max(of_cleanrl, key=lambda name: of_cleanrl[name]) if of_cleanrl else ""
    close = [name for name, speed in candidates.items() if speed >= CLOSE * max(candidates.values()) or name == fastest]
    programs = {name: peer_command(row, name, options) for name in close}
    programs |= {name: ours_command(row, variant, options.seconds) for name, variant in row.ours.items()}
    lines: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    for number in range(options.rounds):
        print(f"  round {number + 1}", file=sys.stderr, flush=True)
        order = list(programs)
        turn = number * len(order) // options.rounds
        for name in order[turn:] + order[:turn]:
            lines[name].append(bench.measure(name, programs[name]))
    best = max(close, key=lambda name: statistics.median(speed_of(line) for line in lines[name]))
    quickest = statistics.median(speed_of(line) for line in lines[best])
    return {
        "title": row.title,
        "date": datetime.date.today().isoformat(),
        "command": "python " + shlex.join(["benchmarks/host_speed.py", *hidden(sys.argv[1:])]),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "load_average": options.load_average,
        "busy_before": bench.busy,
        "best_peer": best,
        "peers": {
            name: variant_record(lines[name], lines[best]) if name in lines else peer_record(line, quickest)
            for name, line in modes.items()
        },
        "ours": {
            name: {
                "apart": variant.apart,
                "mark": variant.mark,
                "first_start": kept(first[name], "compile_seconds", "peak_megabytes"),
                **variant_record(lines[name], lines[best]),
            }
            for name, variant in row.ours.items()
        },
        "marks": marks_of(row),
    }


def check_versions(ours: dict[str, dict[str, Any]], peers: dict[str, dict[str, Any]]) -> None:
    """End the program if the versions of the environment libraries differ."""
    mine = next(iter(ours.values()))["versions"]
    for name, line in peers.items():
        differing = [p for p, v in line["versions"].items() if p in ENVIRONMENTS and mine.get(p, v) != v]
        if differing:
            shown = ", ".join(f"{p} {line['versions'][p]} instead of {mine[p]}" for p in differing)
            sys.exit(f"{name} has {shown}: install the same version (benchmarks/peers/README.md).")


def hidden(arguments: list[str]) -> list[str]:
    """The arguments without the paths of peers, which differ between machines."""
    shown = list(arguments)
    for option, instead in PATHS.items():
        for number, text in enumerate(shown):
            if text == option and number + 1 < len(shown):
                shown[number + 1] = instead
            elif text.startswith(f"{option}="):
                shown[number] = f"{option}={instead}"
    return shown


def kept(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: line[name] for name in names if name in line}


def peer_record(line: dict[str, Any], best: float) -> dict[str, Any]:
    """The one run of a peer's mode that was too slow for the rounds."""
    record = variant_record([line], [line])
    return {**record, "ratio": round(speed_of(line) / best, 2), "ratios": [], "once": True}


def variant_record(lines: list[dict[str, Any]], against: list[dict[str, Any]]) -> dict[str, Any]:
    """All rounds of one program, and their ratios to the peer's of the same round."""
    ratios = [speed_of(line) / speed_of(other) for line, other in zip(lines, against, strict=True)]
    record = {
        "steps_per_second": [speed_of(line) for line in lines],
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "return_mean_last": [line["return_mean_last"] for line in lines if line.get("return_mean_last") is not None],
        **kept(lines[0], "versions", "settings", "parameters", "num_workers"),
    }
    if "peak_megabytes" in lines[0]:
        record["peak_megabytes"] = [line["peak_megabytes"] for line in lines]
        record["peak_processes"] = lines[0]["peak_processes"]
    if "shares" in lines[0]:
        record["shares"] = {name: statistics.median(line["shares"][name] for line in lines) for name in lines[0]["shares"]}
        record["rest"] = [line["shares"]["rest"] for line in lines]
    return record


def held(path: Path) -> dict[str, Any]:
    """The rows of the file, beside today's marks."""
    rows = json.loads(path.read_text())["rows"] if path.is_file() else {}
    return {name: {**row, "marks": marks_of(ROWS[name])} for name, row in rows.items()}


def marks_of(row: Row) -> dict[str, Any]:
    return {name: vars(mark) for name, mark in row.marks.items()}


def save(path: Path, results: dict[str, Any]) -> None:
    """Save the rows in the order of this script, with a description of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "script": "benchmarks/host_speed.py",
        "date": datetime.date.today().isoformat(),
        "machine": {"cpu_count": os.cpu_count(), "processor": processor(), "system": platform.system()},
        "rows": results,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def warn_where_noisy() -> float:
    """Warn if other programs use the machine. Return the load average of the last minute."""
    load, busy = os.getloadavg()[0], busy_share(3.0)
    if load > 0.3 or (busy or 0.0) > BUSY:
        used = f", and others use {busy:.0%} of the cores now" if busy is not None else ""
        print(f"WARNING: the machine is not quiet (load average {load:.2f}{used}): figures will be wrong.", file=sys.stderr)
    return round(load, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", help="interpreter of the environment with Stable-Baselines3")
    parser.add_argument("--cleanrl-python", help="interpreter of the environment for CleanRL")
    parser.add_argument("--cleanrl", type=Path, help="a clone of CleanRL; without it, CleanRL is left out")
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--out", type=Path, default=HERE / "results/host_speed.json")
    parser.add_argument("--show", action="store_true", help="print the tables and draw the plot of the file")
    options = parser.parse_args()
    if not options.show:
        if options.sb3_python is None and any(not ROWS[name].stepping for name in options.rows):
            parser.error("--sb3-python: which interpreter has Stable-Baselines3? (benchmarks/peers/README.md)")
        if options.cleanrl is not None and options.cleanrl_python is None:
            parser.error("--cleanrl-python: which interpreter has CleanRL's requirements? (benchmarks/peers/README.md)")
        if options.rounds < 1:
            parser.error("--rounds: expected at least 1")
        options.load_average = warn_where_noisy()
        for name in options.rows:
            with tempfile.TemporaryDirectory() as cache:
                measured = run_row(ROWS[name], options, Bench(cache))
            results = {**held(options.out), name: measured}
            # Rows that were measured before stay, whatever fails later.
            save(options.out, {key: results[key] for key in ROWS if key in results})
    results = held(options.out)
    print(tables(results))
    plot(results, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
