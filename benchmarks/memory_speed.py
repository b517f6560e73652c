"""Training speed with a memory, compared with the peers, and by cell and sequence length. Fresh processes alternate; medians and ratios are reported.

    python benchmarks/memory_speed.py --sb3-python VENV/bin/python --purejaxrl CHECKOUT [--rows recurrent_ppo purejaxrl cells] \
        [--rounds 3] [--out benchmarks/results/memory_speed.json]
    python benchmarks/memory_speed.py --show        # prints the tables of the file; nothing is measured

recurrent_ppo: an LSTM of 64 for policy and one for value, each followed by 64-64 tanh, CartPoleNoVel-v1, 8 environments × 32 steps, 20
epochs of one minibatch, against sb3-contrib's RecurrentPPO with one thread and with two. purejaxrl: a GRU of 128 on gymnax's CartPole, 64
environments, sequences of 16, against PureJaxRL's recurrent program (whole sequences of 128, as it is written). cells: every cell
on 64 environments × 256 steps, cut into sequences of 8, 64 and 256. Compile time is excluded for all.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from speed import compare, measure

HERE = Path(__file__).parent
CELLS = ("gru", "lstm", "mingru", "lru", "gtrxl")
LENGTHS = (8, 64, 256)
ASKED = {"LSTM 64, CartPoleNoVel-v1, 8 environments": 15, "GRU 128, 64 environments, sequences of 16": 1.6}
"""The mark of each setting: the required ratio of proximo's speed to the peer's."""
ZOO = ["--num-envs", "8", "--num-steps", "32", "--batch-size", "256", "--epochs", "20", "--seconds", "10"]
LSTM = ["memory=lstm", "memory_size=64", "hidden_sizes=", "head_sizes=64,64", "diagnose_every=-1"]
"""The defaults of RecurrentPPO: no encoder, heads of two layers."""


def beside_recurrent_ppo(options: argparse.Namespace) -> list[dict[str, Any]]:
    """RecurrentPPO with one and with two threads, alternating with proximo."""
    ours = [sys.executable, str(HERE / "ours_host.py"), "--env", "CartPoleNoVel-v1", *ZOO, "--set", *LSTM]
    peer = [options.sb3_python, str(HERE / "peers/sb3_recurrent.py"), "--env", "CartPole-v1", *ZOO]
    return [
        compare("LSTM 64, CartPoleNoVel-v1, 8 environments", ours, [*peer, "--threads", threads], options.rounds)
        for threads in ("1", "2")
    ]


def beside_purejaxrl(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Sequences of 16, and whole sequences, as PureJaxRL uses them."""
    flags = ["--num-envs", "64", "--recurrent"]
    peer = [sys.executable, str(HERE / "peers/purejaxrl.py"), "--repo", options.purejaxrl, *flags]
    ours = [sys.executable, str(HERE / "ours.py"), *flags, "--set", "diagnose_every=-1"]
    return [
        compare("GRU 128, 64 environments, sequences of 16", [*ours, "sequence_length=16"], peer, options.rounds),
        compare("GRU 128, 64 environments, whole sequences of 128", ours, peer, options.rounds),
    ]


def cells(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Steps per second of every cell and length; the ratio is to the GRU's of the same length and round."""
    common = [sys.executable, str(HERE / "ours.py"), "--num-envs", "64", "--recurrent", "--repeats", "2", "--set"]
    common += ["num_steps=256", "diagnose_every=-1"]
    speeds: dict[tuple[str, int], list[float]] = {(cell, length): [] for length in LENGTHS for cell in CELLS}
    for number in range(options.rounds):
        order = list(speeds)
        for cell, length in order if number % 2 == 0 else order[::-1]:
            line = measure([*common, f"memory={cell}", f"sequence_length={length}"])
            speeds[cell, length].append(statistics.median(line["steps_per_second"]))
            print(f"round {number + 1}: {cell} {length}: {speeds[cell, length][-1]:,.0f} steps/s", file=sys.stderr, flush=True)
    rows = []
    for (cell, length), rates in speeds.items():
        ratios = [own / gru for own, gru in zip(rates, speeds["gru", length], strict=True)]
        row = {"cell": cell, "sequence_length": length, "steps_per_second": rates, "median": round(statistics.median(rates))}
        rows.append({**row, "ratio_to_gru": round(statistics.median(ratios), 2), "ratios": [round(x, 2) for x in ratios]})
    return rows


PEERS = {"recurrent_ppo": "--sb3-python VENV/bin/python ", "purejaxrl": "--purejaxrl CHECKOUT ", "cells": ""}


def command(name: str, rounds: int) -> str:
    """The command that measures these rows again."""
    return f"python benchmarks/memory_speed.py {PEERS[name]}--rows {name} --rounds {rounds}"


ROWS = {"recurrent_ppo": beside_recurrent_ppo, "purejaxrl": beside_purejaxrl, "cells": cells}


def tables(results: dict[str, Any]) -> str:
    """Markdown."""
    lines = []
    for name in ("recurrent_ppo", "purejaxrl"):
        for row in results.get(name, {}).get("rows", ()):
            rounds = " ".join(f"{x:.2f}" for x in row["ratios"])
            lines.append(
                f"| {row['setting']} | {row['peer']} | {row['ours']:,} / {row['theirs']:,} | **{row['ratio']:.2f}** ({rounds}) |"
            )
    if lines:
        lines = ["| | Peer | proximo / peer, steps/s | Ratio |", "|---|---|---|---|", *lines, ""]
    if "cells" in results:
        lines += [f"| cell | {' | '.join(f'sequence {n}' for n in LENGTHS)} |", "|---|" + "---|" * len(LENGTHS)]
        of = {(row["cell"], row["sequence_length"]): row for row in results["cells"]["rows"]}
        for cell in CELLS:
            row = (of[cell, n] for n in LENGTHS)
            lines.append(f"| `{cell}` | " + " | ".join(f"{one['median']:,} ({one['ratio_to_gru']:.2f})" for one in row) + " |")
    return "\n".join(lines)


def plot(results: dict[str, Any], path: Path) -> None:
    """Left: ratios to the peers, each round as a dot and the median as a bar. Right: cells by sequence length."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained", width_ratios=(1, 1.25))
    rows = [row for name in ("recurrent_ppo", "purejaxrl") for row in results.get(name, {}).get("rows", ())]
    for place, row in enumerate(rows):
        left.barh(place, row["ratio"], color="#2563a8", alpha=0.35)
        left.plot(row["ratios"], [place] * len(row["ratios"]), "o", color="#2563a8", markersize=4)
        if (asked := ASKED.get(row["setting"])) is not None:
            left.plot([asked, asked], [place - 0.4, place + 0.4], color="#c0392b", linewidth=2)
    left.set_yticks(
        range(len(rows)), [f"{row['setting'].replace(', ', chr(10), 1)}\n({row['peer']})" for row in rows], fontsize=7
    )
    left.invert_yaxis()
    left.axvline(1, color="black", linewidth=0.8)
    left.set_xscale("log")
    left.set_xticks([1, 2, 5, 10, 15], ["1", "2", "5", "10", "15"])
    left.minorticks_off()
    left.set_xlabel("times the peer's steps per second (red: asked)", fontsize=8)
    cells = results.get("cells", {}).get("rows", ())
    for place, cell in enumerate(CELLS):
        own = [row for row in cells if row["cell"] == cell]
        places = [i + (place - 2) * 0.16 for i in range(len(own))]
        bars = right.bar(places, [row["median"] for row in own], width=0.15, alpha=0.6, label=cell)
        for at, row in zip(places, own, strict=True):
            rates = row["steps_per_second"]
            right.plot([at] * len(rates), rates, ".", color=bars.patches[0].get_facecolor()[:3], markersize=5)
    right.set_xticks(range(len(LENGTHS)), [f"sequences of {n}" for n in LENGTHS], fontsize=8)
    right.set_ylabel("steps per second", fontsize=8)
    right.legend(fontsize=8, ncols=len(CELLS), loc="upper center", frameon=False)
    right.set_ylim(top=1.15 * max((rate for row in cells for rate in row["steps_per_second"]), default=1))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", help="interpreter of the environment with sb3-contrib (benchmarks/peers/README.md)")
    parser.add_argument("--purejaxrl", help="a checkout of PureJaxRL")
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results/memory_speed.json")
    parser.add_argument("--show", action="store_true", help="print the tables of the file")
    options = parser.parse_args()
    if options.show and not options.out.is_file():
        parser.error(f"--show: there is no {options.out}")
    for row, needed in (("recurrent_ppo", "sb3_python"), ("purejaxrl", "purejaxrl")):
        if row in options.rows and not options.show and not getattr(options, needed):
            parser.error(f"--rows {row} needs --{needed.replace('_', '-')}")
    for name in () if options.show else options.rows:
        record = {"rows": ROWS[name](options), "rounds": options.rounds, "date": datetime.date.today().isoformat()}
        record["command"] = command(name, options.rounds)
        held = json.loads(options.out.read_text()) if options.out.is_file() else {}
        kept = {"script": "benchmarks/memory_speed.py", "cpu_count": os.cpu_count()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**held, **kept, name: record}, indent=1) + "\n")
    results = json.loads(options.out.read_text())
    print(tables(results))
    plot(results, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
