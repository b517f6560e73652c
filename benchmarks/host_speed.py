"""Speed and memory on Gymnasium environments, compared with Stable-Baselines3, CleanRL and Gymnasium.

    python benchmarks/host_speed.py --sb3-python VENV/bin/python --rows cartpole lunarlander [--rounds 3] [--seconds 20]
    python benchmarks/host_speed.py --sb3-python VENV/bin/python --cleanrl-python VENV/bin/python --cleanrl CHECKOUT
    python benchmarks/host_speed.py --show         # prints the tables of the file; nothing is measured

For each row, every variant of proximo first runs once, briefly, to fill a separate compilation cache; this is
recorded as the first start. Every mode of the peer also runs once. Then all variants and the fast modes of
the peer alternate for --rounds rounds. Each ratio is the median of the ratios of the rounds to the peer's
mode with the highest median. Network, batch, epochs and learning rate are equal, there is no value clip, and
compile time is excluded. Variants that are another algorithm or less precise are reported separately and meet
no mark. benchmarks/peers/README.md explains how to install SB3 and CleanRL.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from alternating import alternate, measure, speed_of
from host_speed_rows import CLEANRL, ROWS, Row, Variant

HERE = Path(__file__).parent
CLOSE = 0.8
"""A mode of the peer that reaches this share of the fastest one's speed in the first trial runs in all rounds."""
ENVIRONMENTS = ("gymnasium", "numpy", "ale-py", "box2d", "mujoco")
QUIET = 0.3
"""Load average above which figures are wrong."""


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


def run_row(row: Row, options: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    """Measure one row. Returns its record for the results file."""
    print(row.title, file=sys.stderr, flush=True)
    first = {name: measure(ours_command(row, variant, 1.0), environment) for name, variant in row.ours.items()}
    peers = {name: peer_command(row, name, options) for name in row.peers if name not in CLEANRL or options.cleanrl is not None}
    trials = {name: measure(command, environment) for name, command in peers.items()}
    check_versions(first, {name: line for name, line in trials.items() if name not in CLEANRL})
    speeds = {name: speed_of(line) for name, line in trials.items()}
    of_cleanrl = [name for name in speeds if name in CLEANRL]
    close = {name for name, speed in speeds.items() if speed >= CLOSE * max(speeds.values())}
    close |= {max(of_cleanrl, key=lambda name: speeds[name])} if of_cleanrl else set()
    programs = {name: command for name, command in peers.items() if name in close}
    programs |= {name: ours_command(row, variant, options.seconds) for name, variant in row.ours.items()}
    lines = alternate(programs, options.rounds, environment)
    best = max(close, key=lambda name: statistics.median(map(speed_of, lines[name])))
    first_starts = {name: kept(line, "compile_seconds", "peak_megabytes") for name, line in first.items()}
    return {
        "title": row.title,
        "date": datetime.date.today().isoformat(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "load_average": options.load_average,
        "best_peer": best,
        "peers": {
            name: record_of(lines[name], lines[best]) if name in lines else record_of([line], lines[best]) | {"once": True}
            for name, line in trials.items()
        },
        "ours": {
            name: {"apart": variant.apart, "mark": variant.mark, "first_start": first_starts[name]}
            | record_of(lines[name], lines[best])
            for name, variant in row.ours.items()
        },
    }


def check_versions(ours: dict[str, dict[str, Any]], peers: dict[str, dict[str, Any]]) -> None:
    """Exit if the versions of the environment libraries differ."""
    mine = next(iter(ours.values()))["versions"]
    for name, line in peers.items():
        if differing := [p for p, v in line["versions"].items() if p in ENVIRONMENTS and mine.get(p, v) != v]:
            shown = ", ".join(f"{p} {line['versions'][p]} instead of {mine[p]}" for p in differing)
            sys.exit(f"{name} has {shown}: install the same version (benchmarks/peers/README.md).")


def kept(line: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: line[name] for name in names if name in line}


def record_of(lines: list[dict[str, Any]], against: list[dict[str, Any]]) -> dict[str, Any]:
    """All rounds of one program, and their ratios to the peer's. A mode too slow for the rounds has the line of its trial."""
    ratios = [speed_of(line) / speed_of(other) for line, other in zip(lines, against, strict=False)]
    record = {
        "steps_per_second": [speed_of(line) for line in lines],
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "return_mean_last": [line["return_mean_last"] for line in lines if line.get("return_mean_last") is not None],
        **kept(lines[0], "versions", "settings", "parameters", "num_workers"),
    }
    if "peak_megabytes" in lines[0]:
        record["peak_megabytes"] = [line["peak_megabytes"] for line in lines]
    if "shares" in lines[0]:
        record["shares"] = {name: statistics.median(line["shares"][name] for line in lines) for name in lines[0]["shares"]}
        record["rest"] = [line["shares"]["rest"] for line in lines]
    return record


def tables(rows: dict[str, Any]) -> str:
    """Markdown: all programs of each row, those of proximo first, and the marks."""
    lines = []
    for key, row in rows.items():
        lines += [f"**{row['title']}** ({row['date']}, {row['rounds']} rounds of {row['seconds']:g} s)", ""]
        lines += ["| Program | Steps/s | Ratio | Rounds | Peak MB | Mark, aim |", "|---|---|---|---|---|---|"]
        for program, records in (("proximo: ", row["ours"]), ("", row["peers"])):
            for name, record in sorted(records.items(), key=lambda item: -item[1]["ratio"]):
                rounds = "once" if "once" in record else " ".join(f"{ratio:.2f}" for ratio in record["ratios"])
                memory = f"{statistics.median(record['peak_megabytes']):,.0f}" if "peak_megabytes" in record else "–"
                mark = ROWS[key].marks.get(record.get("mark", "none")) if not record.get("apart") else None
                cells = [f"{statistics.median(record['steps_per_second']):,.0f}", f"{record['ratio']:.2f}", rounds, memory]
                lines.append(
                    f"| {program}{name} | {' | '.join(cells)} | {'–' if mark is None else f'{mark[0]:g}, {mark[1]:g}'} |"
                )
        if "rest" in (default := next(iter(row["ours"].values()))):
            lines += ["", f"Time not spent on environment, policy and update: {statistics.median(default['rest']):.1%}"]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure the rows, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", help="interpreter of the environment with Stable-Baselines3")
    parser.add_argument("--cleanrl-python", help="interpreter of the environment for CleanRL")
    parser.add_argument("--cleanrl", type=Path, help="a clone of CleanRL; without it, CleanRL is left out")
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--out", type=Path, default=HERE / "results/host_speed.json")
    parser.add_argument("--show", action="store_true", help="print the tables of the file")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.is_file() else {}
    if not options.show:
        if options.sb3_python is None and any(not ROWS[name].stepping for name in options.rows):
            parser.error("--sb3-python: which interpreter has Stable-Baselines3? (benchmarks/peers/README.md)")
        if options.cleanrl is not None and options.cleanrl_python is None:
            parser.error("--cleanrl-python: which interpreter has CleanRL's requirements? (benchmarks/peers/README.md)")
        options.load_average = round(os.getloadavg()[0], 2)
        if options.load_average > QUIET:
            print(f"WARNING: the load average is {options.load_average}: figures will be wrong.", file=sys.stderr)
        for name in options.rows:
            with tempfile.TemporaryDirectory() as cache:
                rows[name] = run_row(ROWS[name], options, {"PROXIMO_CACHE_DIR": cache})
            # Rows that were measured before stay, whatever fails later.
            record = {"script": "benchmarks/host_speed.py", "cpu_count": os.cpu_count(), "rows": rows}
            options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(tables(rows))


if __name__ == "__main__":
    main()
