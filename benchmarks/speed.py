"""Training speed compared with the peers: alternating fresh processes, medians, ratios.

    python benchmarks/speed.py --purejaxrl CHECKOUT --rejax-python VENV/bin/python [--rounds 3] [--out benchmarks/results/speed.json]

A peer that is not given is left out (benchmarks/peers/README.md explains how to install them). Every program trains the same network with
the same batch, epochs and value clip; compile time is excluded for all. All processes run with NPROC=4, the remedy against
XLA's deadlock, so that thread counts are equal. The ratio is the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SETTINGS = {"CartPole, 64 environments": ["--num-envs", "64"], "CartPole, 4 environments": ["--num-envs", "4"]}
GRU = {"CartPole with GRU 128, 64 environments": ["--num-envs", "64", "--recurrent"]}

PRESET = ["--num-envs", "8", "--set", "num_epochs=10", "learning_rate=linear(2e-3, 0)", "clip_value_eps=0", "ent_coef=0"]
SEEDS = {
    "10 seeds with the preset": ["--seeds", "10", "--total-steps", "99328", *PRESET],
    "8 seeds, 64 environments": ["--seeds", "8", "--num-envs", "64", "--total-steps", "393216"],
}


def measure(command: list[str]) -> dict:
    """The JSON line of one process."""
    environment = {**os.environ, "NPROC": os.environ.get("NPROC", "4")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(name: str, ours: list[str], peer: list[str], rounds: int) -> dict:
    """Alternate proximo and the peer. Return medians of all repeats, and the median of the ratios of neighbours."""
    pairs = []
    for number in range(rounds):
        # The order changes, so that a drift of the machine's speed favours neither.
        order = (ours, peer) if number % 2 == 0 else (peer, ours)
        lines = [measure(command) for command in order]
        pairs.append(tuple(lines if number % 2 == 0 else lines[::-1]))
    speed = [tuple(statistics.median(line["steps_per_second"]) for line in pair) for pair in pairs]
    result = {
        "setting": name,
        "peer": pairs[0][1]["peer"],
        "ours": round(statistics.median(a for a, _ in speed)),
        "theirs": round(statistics.median(b for _, b in speed)),
        "ratio": round(statistics.median(a / b for a, b in speed), 2),
        "ratios": [round(a / b, 2) for a, b in speed],
        "compile_seconds": [[line.get("compile_seconds") for line in pair] for pair in pairs],
        "versions": [line["versions"] for line in pairs[0]],
    }
    print(
        f"{name:<42} {result['peer']:<22} {result['ours']:>9,} / {result['theirs']:>9,} = {result['ratio']:.2f}  {result['ratios']}",
        flush=True,
    )
    return result


def seeds(rounds: int) -> list[dict]:
    """Several seeds in one program, over the same seeds one after the other."""
    ours = [sys.executable, str(HERE / "ours.py"), "--repeats", "1"]
    rows = []
    for name, flags in SEEDS.items():
        modes = ([*ours, *flags, "--seeds-mode", mode] for mode in ("vmap", "serial"))
        rows.append(compare(f"{name}: one program / one after the other", *modes, rounds))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--purejaxrl", type=Path)
    parser.add_argument("--rejax-python", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", action="store_true", help="also compare several seeds in one program with one after the other")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ours = [sys.executable, str(HERE / "ours.py")]
    rows = []
    if options.purejaxrl:
        peer = [sys.executable, str(HERE / "peers/purejaxrl.py"), "--repo", str(options.purejaxrl)]
        rows += [compare(name, [*ours, *flags], [*peer, *flags], options.rounds) for name, flags in {**SETTINGS, **GRU}.items()]
    if options.rejax_python:
        peer = [str(options.rejax_python), str(HERE / "peers/rejax_ppo.py")]
        rows += [compare(name, [*ours, *flags], [*peer, *flags], options.rounds) for name, flags in SETTINGS.items()]
    if options.seeds:
        rows += seeds(options.rounds)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "script": "benchmarks/speed.py",
            "date": datetime.date.today().isoformat(),
            "cpu_count": os.cpu_count(),
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
