"""Run directories as trainings leave them, written in a moment: for tests of what reads them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from proximo.config import Config, override
from proximo.storage import checkpoint
from proximo.storage.checkpoint import encode
from proximo.storage.run_directory import write_start_files

BATCH = 1024
SPEED = 5000.0
SYSTEM = {"processor": "a processor", "device_kind": "cpu", "versions": {"proximo": "0.1.0", "jax": "0.10.2"}}


def made_rows(updates: int, level: float, seed: int, began: int = 0) -> list[dict[str, Any]]:
    """Rows from update ``began`` to ``updates``, of one session: returns that rise to ``level``, an evaluation at every fifth and
    the last."""
    rng = np.random.default_rng([seed, round(level)])
    rows: list[dict[str, Any]] = []
    for update in range(began + 1, updates + 1):
        step, reached = update * BATCH, level * (1 - math.exp(-5 * update / updates))
        measured = {
            "rollout/return_mean": None if update == 1 else reached + rng.normal(0, 0.1 * level),
            "train/approx_kl": rng.gamma(2, 0.004),
        }
        clock = {"time/seconds": (step - began * BATCH) / SPEED, "time/steps_per_second": SPEED}
        rows.append({"step": step, **measured, **clock})
        if update % 5 == 0 or update == updates:
            rows.append({"step": step, "eval/return_mean": reached + rng.normal(0, 0.02 * level)})
    return rows


def made_run(
    run_dir: Path, env: str = "gymnax:CartPole-v1", seed: int = 0, level: float = 100.0, updates: int = 20, **settings: Any
) -> Path:
    """A finished run in ``run_dir``, of ``updates`` updates."""
    run_dir.mkdir(parents=True, exist_ok=True)
    sizes = {"num_envs": 8, "num_steps": 128, "total_steps": updates * BATCH}
    config = override(Config(), {"id": env, "seed": seed, **sizes, **settings})
    write_start_files(run_dir, config, f"proximo train {env}", SYSTEM)
    write_rows(run_dir, made_rows(updates, level, seed))
    return run_dir


def made_group(folder: Path, seeds: int = 4, level: float = 100.0, **settings: Any) -> Path:
    """A group of ``seeds`` whose levels lie a tenth apart."""
    for seed in range(seeds):
        made_run(folder / f"seed-{seed}", seed=seed, level=level * (1 + 0.1 * seed), **settings)
    return folder


def write_rows(run_dir: Path, rows: list[dict[str, Any]]) -> None:
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def save_checkpoint(folder: Path, step: int, state: Any, info: dict[str, Any] | None = None) -> Path:
    """Write a checkpoint without settings."""
    return checkpoint.write(folder, step, encode(step, state, info or {}))


def flip(path: Path, byte: int, bit: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)
