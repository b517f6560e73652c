"""Check that a change of the code changes no trained number, bit for bit.

    python benchmarks/fingerprint.py --out before.json              # at the commit before the change
    python benchmarks/fingerprint.py --compare before.json          # after it, on the same machine and versions
    python benchmarks/fingerprint.py --cases gru masked --compare before.json

Trains small runs by the command line: every memory, an image, continuous and masked actions, on JAX and on Gymnasium environments,
several seeds in one program. It records the shape, type and SHA-256 of each tensor of the last checkpoint by its name, except the
hyperparameters, which are settings, and every number in the rows of metrics that is not a time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from proximo.cli import main as proximo

JAX, GYMNASIUM = ["--num-envs", "8", "--num-steps", "32"], ["--num-envs", "4", "--num-steps", "32", "--num-workers", "0"]
NORMALIZED = ["--normalize-observation", "true", "--normalize-reward", "true"]
SEQUENCES = ["--sequence-length", "8", "--memory-size", "16"]
CASES: dict[str, list[str]] = {
    "mlp": ["gymnax:CartPole-v1", *JAX, *NORMALIZED],
    "seeds": ["gymnax:CartPole-v1", *JAX, *NORMALIZED, "--seeds", "3", "--seed", "5"],
    "gru": ["proximo:PocMemory", *JAX, *SEQUENCES, "--memory", "gru"],
    "lstm": ["proximo:PocMemory", *JAX, *SEQUENCES, "--memory", "lstm", "--burn-in", "4", "--refresh-memory", "true"],
    "gtrxl": ["proximo:PocMemory", *JAX, *SEQUENCES, "--memory", "gtrxl", "--memory-settings", "window=6,heads=2"],
    "mingru": ["proximo:PocMemory", *JAX, *SEQUENCES, "--memory", "mingru"],
    "lru": ["proximo:PocMemory", *JAX, *SEQUENCES, "--memory", "lru", "--observe-action", "true", "--observe-reward", "true"],
    "cnn": ["gymnax:Breakout-MinAtar", *JAX, "--encoder", "auto", "--target-kl", "0.01"],
    "continuous": ["gymnax:Pendulum-v1", *JAX, *NORMALIZED, "--clip-value-eps", "0.2", "--critic-learning-rate", "1e-3"],
    "masked": ["fingerprint_envs:MaskedCircle", *JAX, "--recompute-advantage", "true", "--objective-settings", "dual_clip=3"],
    "gym-mlp": ["CartPole-v1", *GYMNASIUM, *NORMALIZED, "--desired-kl", "0.01"],
    "gym-gru": ["CartPole-v1", *GYMNASIUM, *SEQUENCES, "--memory", "gru", "--burn-in", "4", "--observe-reward", "true"],
    "gym-continuous": [
        "Pendulum-v1",
        *GYMNASIUM,
        "--optimizer",
        "adamw",
        "--optimizer-settings",
        "weight_decay=0.01",
        "--objective",
        "kl_penalty",
    ],
    "gym-masked": ["fingerprint_envs:MaskedWalk", *GYMNASIUM, "--learner-lag", "1"],
    "gym-picture": ["fingerprint_envs:Picture", *GYMNASIUM, "--ent-coef", "linear(0.01, 0)"],
    "gym-workers": ["CartPole-v1", *GYMNASIUM[:-1], "2", "--overlap", "true", "--stagger-steps", "20"],
}
UPDATES = 4
COMMON = [
    "--normalize-observation",
    "false",
    "--normalize-reward",
    "false",
    "--normalize-advantage",
    "minibatch",
    "--eval-episodes",
    "6",
    "--eval-max-steps",
    "300",
    "--tensorboard",
    "false",
]


def train(name: str, folder: Path) -> list[Path]:
    """Train one case; the run directories of its seeds."""
    arguments = [*COMMON, *CASES[name]]
    envs, steps = (int(arguments[arguments.index(flag) + 1]) for flag in ("--num-envs", "--num-steps"))
    command = [
        "train",
        *arguments,
        "--total-steps",
        str(UPDATES * envs * steps),
        "--name",
        name,
        "--runs-dir",
        str(folder),
        "--no-preset",
    ]
    if proximo(command):
        sys.exit(f"The training of {name} failed.")
    return sorted(path.parent for path in folder.glob(f"*/{name}/**/metrics.jsonl"))


def tensors(run: Path) -> dict[str, str]:
    """Shape, type and SHA-256 of each tensor of the last checkpoint, by name."""
    last = max((run / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    data = (last / "state.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    parts = {
        name: data[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]]
        for name, entry in header.items()
        if learned(name)
    }
    return {
        name: f"{header[name]['dtype']}{header[name]['shape']} {hashlib.sha256(part).hexdigest()[:16]}"
        for name, part in parts.items()
    }


def learned(name: str) -> bool:
    """Whether the training computes the tensor ``name``."""
    return name != "__metadata__" and not name.startswith("learner.hyperparameters")


def numbers(run: Path) -> list[str]:
    """Every number of the metrics except times, row by row, in the order of the numbers themselves: their names may change."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [" ".join(sorted(repr(x) for name, x in row.items() if not name.startswith("time/"))) for row in rows]


def record(cases: list[str]) -> dict[str, Any]:
    """The fingerprints of ``cases``."""
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in cases:
            runs = train(name, Path(folder))
            made[name] = [{"tensors": tensors(run), "metrics": numbers(run)} for run in runs]
            print(f"{name}: {len(runs)} runs, {sum(len(run['tensors']) for run in made[name])} tensors", flush=True)
    return made


def difference(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str:
    """What is different, in words; empty if nothing is."""
    if len(before) != len(after):
        return f"{len(before)} runs before, {len(after)} after"
    for old, new in zip(before, after, strict=True):
        names = [*old["tensors"], *(new["tensors"].keys() - old["tensors"].keys())]
        different = [name for name in names if old["tensors"].get(name) != new["tensors"].get(name)]
        if different:
            return f"{len(different)} of {len(names)} tensors differ, first {different[0]}"
        if old["metrics"] != new["metrics"]:
            return "the tensors are equal, the metrics differ"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--out", type=Path, help="write the fingerprints into this file")
    parser.add_argument("--compare", type=Path, help="compare with the fingerprints of this file")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )  # for worker processes
    made = record(options.cases)
    if options.out:
        options.out.write_text(json.dumps(made, indent=1) + "\n")
    if options.compare:
        before = json.loads(options.compare.read_text())
        found = {name: difference(before[name], made[name]) for name in options.cases}
        for name, what in found.items():
            print(f"{name}: {what or 'equal, bit for bit'}")
        sys.exit(any(found.values()))


if __name__ == "__main__":
    main()
