"""Training speed compared with the peers: alternating fresh processes, medians, ratios.

    python benchmarks/speed.py --purejaxrl CHECKOUT --rejax-python VENV/bin/python [--rounds 3] [--out FILE]
    python benchmarks/speed.py --purejaxrl CHECKOUT --sb3-python VENV/bin/python --rows lstm sequences cells
    python benchmarks/speed.py --rows seeds

cartpole: gymnax's CartPole with 64 and with 4 environments, against PureJaxRL and rejax. gru: a GRU of 128
units on 64 environments, against PureJaxRL; sequences: the same with sequences of 16, where PureJaxRL learns
from whole sequences of 128. lstm: an LSTM of 64 units each for policy and value on CartPoleNoVel-v1, 8
environments × 32 steps, 20 epochs of one minibatch, against sb3-contrib's RecurrentPPO with one thread and
with two. cells: each memory against a GRU, 64 environments × 256 steps, sequences of 8, 64 and 256. seeds:
several seeds in one program against one after the other.

A peer that is not given is left out (benchmarks/peers/README.md explains how to install them). Network,
batch, epochs and value clip are equal; compile time is excluded for all. All processes run with NPROC=4, the
remedy against XLA's deadlock, so that thread counts are equal.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from alternating import alternate, speed_of

HERE = Path(__file__).parent
OURS = [sys.executable, str(HERE / "ours.py")]
GRU = ["--num-envs", "64", "--recurrent"]
CARTPOLE = {f"CartPole, {count} environments": ["--num-envs", str(count)] for count in (64, 4)}
PRESET = ["--num-envs", "8", "--set", "num_epochs=10", "learning_rate=linear(2e-3, 0)", "clip_value_eps=0", "ent_coef=0"]
SEEDS = {
    "10 seeds with the preset": ["--seeds", "10", "--total-steps", "99328", *PRESET],
    "8 seeds, 64 environments": ["--seeds", "8", "--num-envs", "64", "--total-steps", "393216"],
}
ZOO = ["--num-envs", "8", "--num-steps", "32", "--batch-size", "256", "--epochs", "20", "--seconds", "10"]
LSTM = ["memory=lstm", "memory_size=64", "hidden_sizes=", "head_sizes=64,64", "diagnose_every=-1"]
"""The defaults of RecurrentPPO: no encoder, heads of two layers."""
CELLS = ("lstm", "mingru", "lru", "gtrxl")
LENGTHS = (8, 64, 256)


class Comparison(NamedTuple):
    """Two commands. Each prints its speed as a line of JSON."""

    setting: str
    ours: list[str]
    peer: list[str]


def cartpole(options: argparse.Namespace) -> Iterator[Comparison]:
    for name, flags in CARTPOLE.items():
        if options.purejaxrl:
            yield Comparison(name, [*OURS, *flags], [*purejaxrl(options), *flags])
        if options.rejax_python:
            yield Comparison(name, [*OURS, *flags], [str(options.rejax_python), str(HERE / "peers/rejax_ppo.py"), *flags])


def gru(options: argparse.Namespace) -> Iterator[Comparison]:
    if options.purejaxrl:
        yield Comparison("GRU 128, 64 environments, whole sequences of 128", [*OURS, *GRU], [*purejaxrl(options), *GRU])


def sequences(options: argparse.Namespace) -> Iterator[Comparison]:
    if options.purejaxrl:
        ours = [*OURS, *GRU, "--set", "diagnose_every=-1", "sequence_length=16"]
        yield Comparison("GRU 128, 64 environments, sequences of 16", ours, [*purejaxrl(options), *GRU])


def lstm(options: argparse.Namespace) -> Iterator[Comparison]:
    if options.sb3_python:
        ours = [sys.executable, str(HERE / "ours_host.py"), "--env", "CartPoleNoVel-v1", *ZOO, "--set", *LSTM]
        peer = [str(options.sb3_python), str(HERE / "peers/sb3.py"), "--recurrent", "--env", "CartPole-v1", *ZOO]
        for threads in ("1", "2"):
            yield Comparison("LSTM 64, CartPoleNoVel-v1, 8 environments", ours, [*peer, "--threads", threads])


def cells(options: argparse.Namespace) -> Iterator[Comparison]:
    common = [*OURS, *GRU, "--repeats", "2", "--set", "num_steps=256", "diagnose_every=-1"]
    for length in LENGTHS:
        of_length = [*common, f"sequence_length={length}"]
        for cell in CELLS:
            name = f"{cell} against gru, sequences of {length}"
            yield Comparison(name, [*of_length, f"memory={cell}"], [*of_length, "memory=gru"])


def seeds(options: argparse.Namespace) -> Iterator[Comparison]:
    for name, flags in SEEDS.items():
        together, apart = ([*OURS, "--repeats", "1", *flags, "--seeds-mode", mode] for mode in ("vmap", "serial"))
        yield Comparison(f"{name}: one program / one after the other", together, apart)


ROWS = {of.__name__: of for of in (cartpole, gru, sequences, lstm, cells, seeds)}


def purejaxrl(options: argparse.Namespace) -> list[str]:
    return [sys.executable, str(HERE / "peers/purejaxrl.py"), "--repo", str(options.purejaxrl)]


def measured(compared: Comparison, rounds: int) -> dict[str, Any]:
    """Alternate proximo and the peer. Returns medians of all repeats, and the median of the ratios of neighbours."""
    lines = alternate({"ours": compared.ours, "theirs": compared.peer}, rounds)
    pairs = list(zip(lines["ours"], lines["theirs"], strict=True))
    ratios = [speed_of(one) / speed_of(other) for one, other in pairs]
    result = {
        "setting": compared.setting,
        "peer": pairs[0][1]["peer"],
        "ours": round(statistics.median(map(speed_of, lines["ours"]))),
        "theirs": round(statistics.median(map(speed_of, lines["theirs"]))),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "compile_seconds": [[line.get("compile_seconds") for line in pair] for pair in pairs],
        "versions": [line["versions"] for line in pairs[0]],
    }
    figures = f"{result['ours']:>9,} / {result['theirs']:>9,} = {result['ratio']:.2f}  {result['ratios']}"
    print(f"{compared.setting:<52} {result['peer']:<22} {figures}", flush=True)
    return result


def main() -> None:
    """Measure the rows whose peers are given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=["cartpole", "gru"])
    parser.add_argument("--purejaxrl", type=Path, help="a checkout of PureJaxRL")
    parser.add_argument("--rejax-python", type=Path, help="interpreter of the environment with rejax")
    parser.add_argument("--sb3-python", type=Path, help="interpreter of the environment with sb3-contrib")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [measured(compared, options.rounds) for name in options.rows for compared in ROWS[name](options)]
    if not rows:
        parser.error(f"--rows {' '.join(options.rows)}: name a peer (benchmarks/peers/README.md)")
    if options.out:
        about = {"script": "benchmarks/speed.py", "date": datetime.date.today().isoformat(), "cpu_count": os.cpu_count()}
        options.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
