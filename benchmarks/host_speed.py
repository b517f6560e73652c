"""Speed and memory on ordinary environments beside Stable-Baselines3 and Gymnasium, in one run: fresh processes, rounds, medians.

    python benchmarks/host_speed.py --sb3-python VENV/bin/python [--rows cartpole lunarlander pong stepping] [--rounds 3] \
        [--seconds 20] [--out benchmarks/results/host_speed.json]
    python benchmarks/host_speed.py --show         # tables and plot from the file, nothing is measured

For each row first every variant of ours runs once, briefly, to fill a compilation cache of this run's own (what it takes is kept
as the first start), and every mode of the peer runs once. Then the peer's fastest, what comes close to it, and all of ours run in
turn for --rounds rounds; who begins changes. Ratios refer to the peer's mode with the highest median; each is the median of the
rounds' ratios. Same network, batch, epochs,
learning rate, no value clip; compile time excluded. What runs one update behind its rollouts is reported apart and meets no mark.
Writes the JSON file, a plot beside it, and prints the tables in Markdown. benchmarks/peers/README.md says how SB3 is installed.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TIMEOUT = 1800.0
CLOSE = 0.8
"""A mode of the peer that reaches this share of the fastest one's speed in the first trial runs in all rounds."""
BUSY = 0.1
"""Share of the cores that others may use before a warning."""


@dataclass(frozen=True)
class Variant:
    """One program of ours: its arguments, whether it stays apart, and which mark it may meet."""

    arguments: tuple[str, ...] = ()
    apart: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Mark:
    """A figure that the best of the variants named like it has to reach."""

    title: str
    asked: float
    aim: float


@dataclass(frozen=True)
class Row:
    """An environment and a setting, common to all programs."""

    title: str
    setting: tuple[str, ...]
    env: str
    peers: dict[str, tuple[str, ...]]
    ours: dict[str, Variant]
    marks: dict[str, Mark]
    peer_env: str = ""
    memory: bool = False
    stepping: bool = False
    common: tuple[str, ...] = field(default=())
    """Arguments that only ours needs."""


SB3 = {
    f"SB3 {mode}, {threads} thread{'s' if threads > 1 else ''}": ("--mode", mode, "--threads", str(threads))
    for mode in ("dummy", "subproc")
    for threads in (1, 2)
}
BEHIND = "one update behind"
ROWS = {
    "cartpole": Row(
        "CartPole-v1, 8 × 128, batch 256, 4 epochs",
        ("--num-envs", "8", "--num-steps", "128", "--batch-size", "256", "--epochs", "4"),
        "CartPole-v1",
        SB3,
        {
            "as set (Gymnasium's vectorised CartPole)": Variant(),
            "plain environments, in process": Variant(("--workers", "0", "--plain")),
            "overlap, in process": Variant(("--workers", "0", "--overlap")),
            "2 workers": Variant(("--workers", "2")),
            "2 workers, overlap": Variant(("--workers", "2", "--overlap")),
            f"{BEHIND}": Variant(("--lag",), apart=True),
            f"plain environments, {BEHIND}": Variant(("--workers", "0", "--plain", "--lag"), apart=True),
        },
        {"": Mark("CartPole-v1, 8 × 128, batch 256, 4 epochs: training steps/s", 3.5, 5.0)},
    ),
    "lunarlander": Row(
        "LunarLander-v3, 16 × 1024, batch 64, 4 epochs",
        ("--num-envs", "16", "--num-steps", "1024", "--batch-size", "64", "--epochs", "4"),
        "LunarLander-v3",
        SB3,
        {
            "as set": Variant(),
            "in process": Variant(("--workers", "0")),
            "2 workers": Variant(("--workers", "2")),
            "2 workers, overlap": Variant(("--workers", "2", "--overlap")),
            f"2 workers, {BEHIND}": Variant(("--workers", "2", "--lag"), apart=True),
            "EnvPool": Variant(("--env", "envpool:LunarLander-v3"), mark="envpool"),
            f"EnvPool, {BEHIND}": Variant(("--env", "envpool:LunarLander-v3", "--lag"), apart=True, mark="envpool"),
        },
        {
            "": Mark("LunarLander-v3, 16 × 1024, batch 64, 4 epochs: training steps/s", 4.5, 6.0),
            "envpool": Mark("the same on envpool:LunarLander-v3, against SB3 on Gymnasium", 8.0, 9.5),
        },
    ),
    "pong": Row(
        "Pong, 8 × 128, Nature CNN, batch 256, 4 epochs",
        ("--num-envs", "8", "--num-steps", "128", "--batch-size", "256", "--epochs", "4"),
        "ale:pong",
        SB3,
        {
            "ale:pong": Variant(),
            "envpool:Pong-v5": Variant(("--env", "envpool:Pong-v5")),
            "PongNoFrameskip-v4, 2 workers": Variant(
                ("--env", "ale_py:PongNoFrameskip-v4", "--workers", "2", "--set", "preprocessing=atari", "frame_stack=4")
            ),
            f"ale:pong, {BEHIND}": Variant(("--lag",), apart=True),
        },
        {"": Mark("Pong, 8 × 128, Nature CNN, batch 256, 4 epochs, CPU: training steps/s", 2.5, 3.0)},
        peer_env="PongNoFrameskip-v4",
        memory=True,
        common=("--images",),
    ),
    "stepping": Row(
        "LunarLander-v3, 16, stepping alone",
        ("--num-envs", "16"),
        "LunarLander-v3",
        {
            "AsyncVectorEnv, next-step reset": ("--mode", "async"),
            "AsyncVectorEnv, same-step reset": ("--mode", "async", "--autoreset", "same_step"),
            "SyncVectorEnv, next-step reset": ("--mode", "sync"),
        },
        {
            "2 workers": Variant(("--workers", "2")),
            "2 workers, overlap": Variant(("--workers", "2", "--overlap")),
            "in process": Variant(("--workers", "0"), mark="none"),
        },
        {"": Mark("stepping alone, LunarLander-v3, 16: our workers against AsyncVectorEnv", 3.0, 4.0)},
        stepping=True,
        common=("--stepping", "--num-steps", "1024"),
    ),
}


def ours_command(row: Row, variant: Variant, seconds: float) -> list[str]:
    """Later arguments win: a variant may name another environment."""
    memory = ["--memory"] if row.memory else []
    given = [*row.setting, *row.common, *memory, "--seconds", str(seconds)]
    return [sys.executable, str(HERE / "ours_host.py"), "--env", row.env, *given, *variant.arguments]


def peer_command(row: Row, arguments: tuple[str, ...], seconds: float, sb3_python: str) -> list[str]:
    given = ["--env", row.peer_env or row.env, *row.setting, *arguments, "--seconds", str(seconds)]
    if row.stepping:
        return [sys.executable, str(HERE / "peers/gymnasium_vector.py"), *given]
    return [sb3_python, str(HERE / "peers/sb3.py"), *given, *(["--memory"] if row.memory else [])]


def busy_share(seconds: float = 1.0) -> float | None:
    """The share of all cores' time that something used while this process slept; None where /proc does not tell."""

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


def speed_of(line: dict[str, Any]) -> float:
    return statistics.median(line["steps_per_second"])


def run_row(row: Row, options: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    """Everything measured for one row, as the results file keeps it."""
    print(f"{row.title}\n  first starts", file=sys.stderr, flush=True)
    first = {
        name: bench.measure(name, ours_command(row, variant, min(1.0, options.seconds))) for name, variant in row.ours.items()
    }
    print("  modes of the peer", file=sys.stderr, flush=True)
    modes = {
        name: bench.measure(name, peer_command(row, arguments, options.seconds, options.sb3_python))
        for name, arguments in row.peers.items()
    }
    candidates = {name: speed_of(line) for name, line in modes.items() if not row.stepping or name.startswith("Async")}
    close = [name for name, speed in candidates.items() if speed >= CLOSE * max(candidates.values())]
    programs = {name: peer_command(row, row.peers[name], options.seconds, options.sb3_python) for name in close}
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
        "marks": {name: vars(mark) for name, mark in row.marks.items()},
    }


def hidden(arguments: list[str]) -> list[str]:
    """The arguments without the path of the peer's interpreter, which is this machine's own."""
    shown = list(arguments)
    for number, text in enumerate(shown):
        if text == "--sb3-python" and number + 1 < len(shown):
            shown[number + 1] = "VENV/bin/python"
        elif text.startswith("--sb3-python="):
            shown[number] = "--sb3-python=VENV/bin/python"
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
        "mean_return_last": [line["mean_return_last"] for line in lines if line.get("mean_return_last") is not None],
        **kept(lines[0], "versions", "settings", "parameters", "num_workers"),
    }
    if "peak_megabytes" in lines[0]:
        record["peak_megabytes"] = [line["peak_megabytes"] for line in lines]
        record["peak_processes"] = lines[0]["peak_processes"]
    if "shares" in lines[0]:
        record["shares"] = {name: statistics.median(line["shares"][name] for line in lines) for name in lines[0]["shares"]}
        record["rest"] = [line["shares"]["rest"] for line in lines]
    return record


def judged(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of the table of marks, from what the file holds."""
    lines = []
    for key, row in results.items():
        for name, mark in row["marks"].items():
            fit = {label: v for label, v in row["ours"].items() if v["mark"] == name and not v["apart"]}
            label = max(fit, key=lambda one: fit[one]["ratio"])
            lines.append(
                {
                    "title": mark["title"],
                    "ours": f"{statistics.median(fit[label]['steps_per_second']):,.0f} ({label})",
                    "theirs": f"{statistics.median(best_of(row)['steps_per_second']):,.0f} ({row['best_peer']})",
                    "figure": f"{fit[label]['ratio']:.2f}×",
                    "rounds": " ".join(f"{x:.2f}" for x in fit[label]["ratios"]),
                    "asked": f"{mark['asked']:g}×",
                    "aim": f"{mark['aim']:g}×",
                    "verdict": verdict(fit[label]["ratio"] >= mark["asked"], fit[label]["ratio"] >= mark["aim"]),
                }
            )
        if key == "cartpole":
            lines.append(share_line(row))
        if "peak_megabytes" in best_of(row):
            lines.append(memory_line(row))
    return lines


def share_line(row: dict[str, Any]) -> dict[str, Any]:
    label, variant = next(iter(row["ours"].items()))
    rest = statistics.median(variant["rest"])
    return {
        "title": "CartPole-v1: share of the wall time in neither environment, policy nor update",
        "ours": label,
        "theirs": "–",
        "figure": f"{rest:.1%}",
        "rounds": " ".join(f"{x:.1%}" for x in variant["rest"]),
        "asked": "under 15 %",
        "aim": "under 8 %",
        "verdict": verdict(rest < 0.15, rest < 0.08),
    }


def memory_line(row: dict[str, Any]) -> dict[str, Any]:
    label, variant = next(iter(row["ours"].items()))
    mine, theirs = (statistics.median(record["peak_megabytes"]) for record in (variant, best_of(row)))
    first = variant["first_start"].get("peak_megabytes")
    return {
        "title": "Pong: peak memory of all processes (PSS)",
        "ours": f"{mine:,.0f} MB ({label}; first start, which compiles: {first:,.0f} MB)",
        "theirs": f"{theirs:,.0f} MB ({row['best_peer']})",
        "figure": f"{mine / theirs:.2f}×",
        "rounds": " ".join(
            f"{a / b:.2f}" for a, b in zip(variant["peak_megabytes"], best_of(row)["peak_megabytes"], strict=True)
        ),
        "asked": "no more",
        "aim": "half",
        "verdict": verdict(mine <= theirs, mine <= theirs / 2),
    }


def verdict(asked: bool, aim: bool) -> str:
    return "aim" if aim else "asked" if asked else "MISSED"


def tables(results: dict[str, Any]) -> str:
    """Markdown: the marks, then every program with the losers."""
    lines = ["| | ours | peer | figure | rounds | asked | aim | reached |", "|---|---|---|---|---|---|---|---|"]
    for mark in judged(results):
        names = ("title", "ours", "theirs", "figure", "rounds", "asked", "aim", "verdict")
        lines.append("| " + " | ".join(mark[name] for name in names) + " |")
    for row in results.values():
        lines += ["", f"**{row['title']}** ({row['date']}, {row['rounds']} rounds of {row['seconds']:g} s)", ""]
        lines += ["| program | steps/s | ratio | rounds |" + (" peak MB |" if "peak_megabytes" in best_of(row) else "")]
        lines += ["|---|---|---|---|" + ("---|" if "peak_megabytes" in best_of(row) else "")]
        for label, speed, ratio, rounds, memory, _ in programs_of(row):
            told = " ".join(f"{x:.2f}" for x in rounds)
            lines.append(f"| {label} | {speed:,.0f} | {ratio:.2f} | {told} |" + (f" {memory:,.0f} |" if memory else ""))
    return "\n".join(lines)


def best_of(row: dict[str, Any]) -> dict[str, Any]:
    """The peer's mode that ratios refer to."""
    return row["peers"][row["best_peer"]]


def programs_of(row: dict[str, Any]) -> list[tuple[str, float, float, list[float], float, str]]:
    """(label, steps/s, ratio, ratios of the rounds, peak megabytes or 0, kind) of every program, ours first, then the
    peer's modes, the fastest first."""
    entries = []
    for label, v in row["ours"].items():
        memory = statistics.median(v.get("peak_megabytes", [0]))
        kind = "behind" if v["apart"] else "ours"
        entries.append((f"ours: {label}", statistics.median(v["steps_per_second"]), v["ratio"], v["ratios"], memory, kind))
    for label, p in sorted(row["peers"].items(), key=lambda item: -item[1]["ratio"]):
        memory = statistics.median(p.get("peak_megabytes", [0]))
        kind = "best" if label == row["best_peer"] else "peer"
        shown = f"{label} (once)" if "once" in p else label
        rounds = [] if kind == "best" else p["ratios"]
        entries.append((shown, statistics.median(p["steps_per_second"]), p["ratio"], rounds, memory, kind))
    return entries


COLORS = {"ours": "#2563a8", "behind": "#9fc2e6", "best": "#444444", "peer": "#b5b5b5"}


def plot(results: dict[str, Any], path: Path) -> None:
    """Bars of ratios for each row with the rounds as dots, then the shares of CartPole and the memory of Pong."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels: list[tuple[int, Any]] = [(len(programs_of(row)), (draw_ratios, row)) for row in results.values()]
    if "cartpole" in results:
        shares = {n: v["shares"] for n, v in results["cartpole"]["ours"].items() if not v["apart"] and "shares" in v}
        panels.append((len(shares) + 1, (draw_shares, shares)))
    panels += [(len(programs_of(row)), (draw_memory, row)) for row in results.values() if "peak_megabytes" in best_of(row)]
    width, bar, between, left, right = 11.0, 0.24, 0.75, 3.0, 0.3  # inches
    whole = sum(bar * count + between for count, _ in panels) + 0.5
    figure = plt.figure(figsize=(width, whole))
    top = whole - 0.35
    for count, (draw, data) in panels:
        bottom = top - 0.3 - bar * count
        axis = figure.add_axes((left / width, bottom / whole, (width - left - right) / width, bar * count / whole))
        top -= bar * count + between
        draw(axis, data)
        axis.invert_yaxis()
        axis.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    title = "proximo beside Stable-Baselines3 and Gymnasium: dark blue ours, pale blue one update behind its rollouts, grey peers"
    figure.text(0.5, 1 - 0.22 / whole, title, ha="center", fontsize=10)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_ratios(axis: Any, row: dict[str, Any]) -> None:
    entries = programs_of(row)
    axis.barh(range(len(entries)), [e[2] for e in entries], color=[COLORS[e[5]] for e in entries], height=0.7)
    edge = max([e[2] for e in entries] + [m["aim"] for m in row["marks"].values()] + [x for e in entries for x in e[3]])
    for place, (_, speed, ratio, rounds, _, _) in enumerate(entries):
        axis.plot(rounds, [place] * len(rounds), "o", color="black", markersize=3.5, clip_on=False)
        text = f"{ratio:.2f}× · {speed:,.0f}/s"
        axis.text(max([ratio, *rounds]) + 0.012 * edge, place, text, va="center", fontsize=8)
    for name, mark in row["marks"].items():
        fit = [place for place, e in enumerate(entries) if e[0].startswith("ours: ") and mark_of(row, e[0]) == name]
        for figure, style in ((mark["asked"], "-"), (mark["aim"], ":")):
            axis.plot([figure] * 2, [min(fit) - 0.5, max(fit) + 0.5], style, color="#c0392b", linewidth=1.3)
    axis.axvline(1.0, color="#444444", linewidth=0.8)
    axis.set_yticks(range(len(entries)), [e[0] for e in entries], fontsize=8)
    axis.set_xlim(0, edge * 1.22)
    axis.set_title(f"{row['title']}: steps/s over {row['best_peer']}'s  (red: asked, dotted: aim)", fontsize=9, loc="left")


def mark_of(row: dict[str, Any], label: str) -> str:
    return row["ours"][label.removeprefix("ours: ")]["mark"]


def draw_shares(axis: Any, shares: dict[str, dict[str, float]]) -> None:
    colors = {"environment": "#5b8c5a", "policy": "#2563a8", "update": "#d08a2c", "rest": "#c0392b"}
    for place, parts in enumerate(shares.values()):
        left = 0.0
        for name, color in colors.items():
            axis.barh(place, parts.get(name, 0.0), left=left, color=color, height=0.7, label=name if place == 0 else None)
            left += parts.get(name, 0.0)
        axis.text(left + 0.01, place, f"rest {parts['rest']:.1%}", va="center", fontsize=8)
    axis.set_yticks(range(len(shares)), list(shares), fontsize=8)
    axis.set_xlim(0, 1.3)
    axis.legend(ncols=4, fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)
    axis.set_title("CartPole-v1: where the wall time goes", fontsize=9, loc="left")


def draw_memory(axis: Any, row: dict[str, Any]) -> None:
    entries = programs_of(row)
    axis.barh(range(len(entries)), [e[4] for e in entries], color=[COLORS[e[5]] for e in entries], height=0.7)
    for place, entry in enumerate(entries):
        axis.text(entry[4] * 1.01, place, f" {entry[4]:,.0f} MB", va="center", fontsize=8)
    axis.set_yticks(range(len(entries)), [e[0] for e in entries], fontsize=8)
    axis.set_xlim(0, max(e[4] for e in entries) * 1.15)
    axis.set_title(f"{row['title']}: peak memory of all processes", fontsize=9, loc="left")


def held(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["rows"] if path.is_file() else {}


def save(path: Path, results: dict[str, Any]) -> None:
    """Rows in the order of this script, with the machine they were measured on."""
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
    """Say so when the machine is not quiet; the load average of the last minute."""
    load, busy = os.getloadavg()[0], busy_share(3.0)
    if load > 0.3 or (busy or 0.0) > BUSY:
        used = f", and others use {busy:.0%} of the cores now" if busy is not None else ""
        print(f"WARNING: the machine is not quiet (load average {load:.2f}{used}): figures will be wrong.", file=sys.stderr)
    return round(load, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", help="interpreter of the environment with Stable-Baselines3")
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--out", type=Path, default=HERE / "results/host_speed.json")
    parser.add_argument("--show", action="store_true", help="tables and plot of the file that is there")
    options = parser.parse_args()
    if not options.show:
        if options.sb3_python is None and any(not ROWS[name].stepping for name in options.rows):
            parser.error("--sb3-python: which interpreter has Stable-Baselines3? (benchmarks/peers/README.md)")
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
