"""Measure this machine's accelerators in one unattended command of at most ten minutes: speed, compilation, memory, utilisation, scaling.

    python benchmarks/accelerator.py --purejaxrl CHECKOUT      # benchmarks/peers/README.md says how to get it
    python benchmarks/accelerator.py --tiny                    # sixteen environments, to test the script on a CPU

Cases: CartPole, CartPole with a GRU, Brax ant and Nature CNN on images of 84 × 84 × 4 bytes, with 2,048 and 8,192 environments; the first three
also with PureJaxRL, which has no program for images. With several devices, CartPole and the GRU also train on 2, 4, … of them with as many
environments for each device as on one (weak scaling). Each case is a separate process. A case that fails is a row with its error, one that does
not fit into the time is skipped. Prints one table, and writes it with the machine and the date after every case.

Utilisation is the mean of what ``nvidia-smi`` samples during the timed calls. Without it, it is the time of a call in a queue of calls, in which
the device never waits for Python, divided by the time of a call whose result Python waits for.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES = ("CartPole", "CartPole, GRU", "Brax ant", "Nature CNN")
PEER_FLAGS = {"CartPole": [], "CartPole, GRU": ["--recurrent"], "Brax ant": ["--ant"]}
PEER_STEPS = {"CartPole": 128, "CartPole, GRU": 128, "Brax ant": 10}
"""Steps of an environment in an update of PureJaxRL."""
SCALED = CASES[:2]
LEAST_SECONDS = 20
"""A case with less time is skipped."""
ERROR = re.compile(r"[\w.]+(Error|Exception|Interrupt)\b")
"""The line of a traceback that has the message."""

Row = dict[str, Any]


def planned(options: argparse.Namespace, devices: int) -> list[Row]:
    """The rows to measure, the most important first."""
    rows = [
        {"case": case, "program": program, "envs": envs, "devices": 1}
        for envs in options.envs
        for case in options.cases
        for program in ("proximo", "PureJaxRL")
    ]
    counts = [2**i for i in range(1, devices.bit_length()) if 2**i <= devices]
    scaled = [
        {"case": case, "program": "proximo", "envs": options.envs[0] * count, "devices": count}
        for count in counts
        for case in options.cases
        if case in SCALED
    ]
    first = len(rows) // len(options.envs)
    return [*rows[:first], *scaled, *rows[first:]]


def measured(row: Row, options: argparse.Namespace, deadline: float) -> Row:
    """The row with its measurement. If there is none, the row has a note with the reason."""
    case, seconds = row["case"], deadline - time.monotonic()
    if row["program"] == "PureJaxRL":
        if case not in PEER_FLAGS:
            return {**row, "note": "it has no program for images"}
        if options.purejaxrl is None:
            return {**row, "note": "not given (--purejaxrl)"}
        steps = row["envs"] * PEER_STEPS[case] * (2 if options.tiny else 8)
        command = ["peers/purejaxrl.py", "--repo", str(options.purejaxrl), *PEER_FLAGS[case], "--num-envs", str(row["envs"])]
        command += ["--total-steps", str(steps), "--repeats", "1" if options.tiny else "3"]
    else:
        command = ["accelerator_case.py", "--case", case, "--envs", str(row["envs"]), "--devices", str(row["devices"])]
        command += ["--seconds", "0", "--updates", "1"] if options.tiny else ["--seconds", "6"]
    if seconds < LEAST_SECONDS:
        return {**row, "note": "skipped: no time left"}
    return {**row, **result_of(command, min(seconds, options.case_seconds))}


def result_of(command: list[str], limit: float) -> Row:
    """What a script of this folder prints as its last line; a note if it fails or takes longer than ``limit`` seconds."""
    # Compilations are measured, so nothing is read from a cache.
    env = {**os.environ, "NPROC": os.environ.get("NPROC", "4"), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / command[0]), *command[1:]], capture_output=True, text=True, env=env, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return {"note": f"stopped after {limit:.0f} s"}
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if ERROR.match(line)]
        return {"note": f"failed: {errors[-1][:200] if errors else f'exit code {done.returncode}'}"}
    line = json.loads(done.stdout.strip().splitlines()[-1])
    kept = ("steps_per_second", "update_seconds", "compile_seconds", "peak_device_memory", "busy", "busy_by", "note")
    row = {name: line[name] for name in (*kept, "device", "platform", "devices", "versions") if line.get(name) is not None}
    if isinstance(row.get("steps_per_second"), list):
        row["steps_per_second"] = statistics.median(row["steps_per_second"])
    return row


def with_ratio(row: Row, rows: list[Row]) -> Row:
    """The row with its speed divided by that of PureJaxRL, or with its share of linear speedup."""

    def speed(**of: Any) -> float | None:
        found = [each for each in rows if all(each[name] == value for name, value in of.items())]
        return found[0].get("steps_per_second") if found else None

    own, case, devices = row.get("steps_per_second"), row["case"], row["devices"]
    if own and row["program"] == "proximo":
        peer = speed(case=case, program="PureJaxRL", envs=row["envs"], devices=devices)
        alone = speed(case=case, program="proximo", envs=row["envs"] // devices, devices=1)
        if devices == 1 and peer:
            return {**row, "over_purejaxrl": round(own / peer, 2)}
        if devices > 1 and alone:
            return {**row, "weak_scaling": round(own / alone / devices, 3)}
    return row


def table(record: Row) -> str:
    """Markdown."""
    lines = [
        f"{record['devices']} × {record['device']} ({record['platform']}), {record['date']}",
        "",
        "| Case | Environments | Devices | Program | Steps/s | / PureJaxRL | Of linear | Compile, s | Memory, MB | Busy | Note |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        memory = row.get("peak_device_memory")
        cells = [
            row["case"],
            f"{row['envs']:,}",
            row["devices"],
            row["program"],
            f"{row['steps_per_second']:,.0f}" if "steps_per_second" in row else "–",
            f"{row['over_purejaxrl']:.2f}" if "over_purejaxrl" in row else "–",
            f"{100 * row['weak_scaling']:.0f} %" if "weak_scaling" in row else "–",
            row.get("compile_seconds", "–"),
            f"{memory / 1e6:,.0f}" if memory else "–",
            f"{100 * row['busy']:.0f} % ({row['busy_by']})" if "busy" in row else "–",
            row.get("note", ""),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--purejaxrl", type=Path, help="a checkout of PureJaxRL")
    parser.add_argument("--envs", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--minutes", type=float, default=9.0, help="time for all cases together")
    parser.add_argument("--case-seconds", type=float, default=150.0, help="time for one case")
    parser.add_argument("--tiny", action="store_true", help="sixteen environments, and as few updates as possible")
    parser.add_argument("--out", type=Path, default=HERE / "results/accelerator.json")
    options = parser.parse_args()
    if options.tiny:
        options.envs = [16]
    return options


def main() -> int:
    """Measure, print and write."""
    options = parse()
    deadline = time.monotonic() + 60 * options.minutes
    machine = result_of(["accelerator_case.py"], 120)
    if "device" not in machine:
        print(f"No device was found: {machine['note']}", file=sys.stderr)
        return 1
    record = {"script": "benchmarks/accelerator.py", "date": datetime.date.today().isoformat(), **machine, "rows": []}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for row in planned(options, machine["devices"]):
        record["rows"].append(measured(row, options, deadline))
        record["rows"] = [with_ratio(each, record["rows"]) for each in record["rows"]]
        options.out.write_text(json.dumps(record, indent=1) + "\n")
        last = record["rows"][-1]
        print(f"{last['case']}, {last['envs']}, {last['devices']}, {last['program']}: done", file=sys.stderr, flush=True)
    print(table(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
