"""Measure the time of `proximo report` on twenty runs of a million steps, and the size of its page.

    python benchmarks/report_speed.py [--keep DIR]

The runs are written here, not trained: two environments with two cells of five seeds each, a row for every update of 1,024 steps
(ten times as many as trainings write by default) and forty evaluations. One of them has failed, one was resumed, one is interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from proximo.config import Config, override
from proximo.storage.run_directory import write_start_files

BATCH, UPDATES, EVALUATIONS = 1024, 976, 40
CURVES = {("gymnax:CartPole-v1", "gru"): (20, 500, 0.2), ("gymnax:CartPole-v1", "lstm"): (20, 430, 0.4)} | {
    ("gymnax:Acrobot-v1", "gru"): (-500, -75, 0.1), ("gymnax:Acrobot-v1", "lstm"): (-500, -95, 0.15),
}  # fmt: skip
"""Return at the start and at the end, and the share of the training that learning takes."""


def rows(rng: np.random.Generator, first: float, last: float, takes: float, seconds: float) -> list[dict]:
    """One training's rows."""
    delay, found = takes * rng.uniform(0.8, 1.6), []
    last = last + 0.05 * abs(last - first) * min(0.0, rng.normal())
    for update in range(1, UPDATES + 1):
        done, step = update / UPDATES, update * BATCH
        level = first + (last - first) / (1 + math.exp(-12 * (done - delay)))
        noise = 0.08 * abs(last - first) * rng.normal()
        row = {
            "memory/staleness": abs(rng.normal(0, 0.01)) if update % 20 == 1 else None,
            "memory/use": rng.uniform(0.1, 0.3) if update % 20 == 1 else None,
            "train/approx_kl": rng.gamma(3, 0.002),
            "train/clip_eps": 0.2,
            "train/clip_fraction": rng.beta(3, 30),
            "train/ent_coef": 0.01,
            "train/entropy": 0.69 * (1 - 0.8 * done) + 0.02 * rng.normal(),
            "train/explained_variance": 1 - 2 * math.exp(-8 * done) + 0.05 * rng.normal(),
            "train/grad_norm": rng.gamma(4, 0.1),
            "train/gradient_steps": 16.0,
            "train/learning_rate": 3e-4 * (1 - done),
            "train/loss": rng.normal(0.1, 0.05),
            "train/policy_loss": rng.normal(-0.01, 0.005),
            "train/ratio_max": 1 + rng.gamma(2, 0.2),
            "train/ratio_min": 1 - rng.beta(2, 8),
            "train/value_loss": rng.gamma(3, 0.05),
            "rollout/episodes": float(rng.poisson(4)),
            "rollout/return_mean": level + noise,
            "rollout/length_mean": abs(level + noise),
            "time/seconds": done * seconds,
            "time/steps_per_second": UPDATES * BATCH / seconds,
        }
        found.append({"step": step, **row})
        if update % (UPDATES // EVALUATIONS) == 0 or update == UPDATES:
            found.append({"step": step, "eval/return_mean": level + 0.3 * noise, "eval/return_std": abs(noise)})
    return found


def resumed(found: list[dict], at: int) -> list[dict]:
    """The same rows with a clock that starts again after update ``at``."""
    half = at * BATCH
    speed = found[0]["time/steps_per_second"]
    return [
        {**row, "time/seconds": (row["step"] - half) / speed} if "time/seconds" in row and row["step"] > half else row
        for row in found
    ]


def write_runs(folder: Path) -> list[Path]:
    """Twenty runs in four groups."""
    groups = []
    for (env, memory), (first, last, takes) in CURVES.items():
        group = folder / env.replace(":", "-") / memory
        groups.append(group)
        for seed in range(5):
            run_dir = group / f"seed-{seed}"
            run_dir.mkdir(parents=True)
            settings = {"id": env, "memory": memory, "seed": seed, "seeds": 5, "name": memory, "total_steps": UPDATES * BATCH}
            system = {"processor": "none: written, not trained", "versions": {}}
            write_start_files(run_dir, override(Config(), settings), f"proximo train {env} --memory {memory}", system)
            rng = np.random.default_rng([seed, len(groups)])
            found = rows(rng, first, last, takes, rng.uniform(200, 320))
            if (memory, seed) == ("lstm", 4):
                found = found[:300] if "CartPole" in env else found[:700]
                if "CartPole" in env:
                    (run_dir / "failure.txt").write_text(
                        "NaN or infinity in the loss (lower learning_rate). Training has stopped.\n"
                    )
            if (memory, seed) == ("gru", 1):
                found = resumed(found, 400)
            (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="write runs and report here, and leave them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        groups = write_runs(folder / "runs")
        command = [sys.executable, "-m", "proximo", "report", *map(str, groups), "--out", str(folder / "report")]
        for _ in range(3):
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            print(f"{time.perf_counter() - started:.2f} s")
        for path in sorted((folder / "report").iterdir()):
            print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
