"""Train one seed of a suite, evaluate its final policy, and add it to the results: the process that ``suite.py`` starts for each seed."""

from __future__ import annotations

import time

STARTED = time.monotonic()

import argparse
import json
import re
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import proximo
from proximo.config import Config, to_mapping
from proximo.config.loading import tree_layer
from proximo.config.presets import load_kind
from proximo.settings import make_config
from proximo.config.schema import WORKER_SETTINGS
from proximo.jax_setup import cores
from proximo.storage import checkpoint, run_directory
from proximo.tracking.run_trackers import read_rows
from measurements import circumstances
from suite_tasks import EVALUATION_SEEDS, Task, add_result, load_suite, recorded_seeds

LAST_EPISODES = 100
CURVE_POINTS = 100
SESSIONS = "sessions.json"
"""File in the run directory: what each process that trained this seed has used."""


def resolved(task: Task, more: dict[str, Any]) -> Config:
    """The settings of a task, changed by ``more``."""
    defaults = tree_layer(load_kind(task.kind), task.kind).settings if task.kind else {}
    return make_config(task.env, {**defaults, **task.settings, **more}, preset=task.preset and not task.kind)


def config_of(task: Task, name: str, seed: int, folder: Path) -> Config:
    """All settings of the training of a seed, whose run directory is in ``folder``."""
    config = resolved(task, {})
    run = {
        "seed": seed,
        "runs_dir": str(folder),
        "name": f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}-seed-{seed}",
        "eval_episodes": 0,
        "checkpoint_every": max(1, config.ppo.total_steps // 20),
        "keep_checkpoints": 2,
        "tensorboard": False,
    }
    return resolved(task, run)


def described(task: Task, config: Config) -> dict[str, Any]:
    """The part of a record that all seeds of a task share."""
    settings = to_mapping(config)
    settings["run"] = {"devices": config.run.devices}
    settings["env"] = {name: value for name, value in settings["env"].items() if name not in WORKER_SETTINGS}
    evaluation = {name: getattr(task, name) for name in ("metric", "policy", "episodes", "unseen")}
    return {**evaluation, "steps": config.total_updates * config.batch_size, "settings": json.loads(json.dumps(settings))}


def train(config: Config, run_dir: Path) -> list[dict[str, Any]]:
    """Train the seed, or continue where it stopped. Returns what each session has used, without those that were killed. Exits if a signal
    stops it."""
    file = run_dir / SESSIONS
    sessions = json.loads(file.read_text()) if file.is_file() else []
    if run_dir.is_dir() and run_directory.read_config(run_dir) != config:
        sys.exit(f"{run_dir} has other settings: remove it to train this seed from the beginning.")
    if run_dir.is_dir() and checkpoint.steps(run_dir / "checkpoints")[-1:] == [config.total_updates * config.batch_size]:
        return sessions
    if run_dir.is_dir():
        [result] = proximo.resume(run_dir, progress=True)
    else:
        [result] = proximo.train(config=config, progress=True)
    session = {
        "wall_seconds": round(time.monotonic() - STARTED, 1),
        "compile_seconds": round(result.compile_seconds, 1),
        "train_seconds": round(result.seconds, 4),
        "steps": result.steps - result.resumed_at,
    }
    file.write_text(json.dumps([*sessions, session], indent=1) + "\n")
    if result.interrupted is not None:
        sys.exit(128 + signal.SIGINT)
    return [*sessions, session]


def learning_curve(rows: list[dict[str, Any]]) -> list[list[float]]:
    """``[step, mean return of the episodes that ended since the last point]``, with at most ``CURVE_POINTS`` points."""
    ended = [row for row in rows if row.get("rollout/episodes")]
    if not ended:
        return []
    parts = np.array_split(np.arange(len(ended)), min(len(ended), CURVE_POINTS))
    return [[ended[part[-1]]["step"], round(mean_return([ended[i] for i in part]), 4)] for part in parts]


def mean_return(rows: list[dict[str, Any]]) -> float:
    """Mean return of all episodes in ``rows``."""
    return float(np.average([row["rollout/return_mean"] for row in rows], weights=[row["rollout/episodes"] for row in rows]))


def last_episodes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last rows, with at least ``LAST_EPISODES`` episodes together."""
    last, count = [], 0
    for row in reversed([row for row in rows if row.get("rollout/episodes")]):
        if count >= LAST_EPISODES:
            break
        last, count = [row, *last], count + row["rollout/episodes"]
    return last


def row_of(task: Task, seed: int, run_dir: Path, sessions: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of a trained seed."""
    rows = read_rows(run_dir / run_directory.METRICS)
    last = last_episodes(rows)
    policy = proximo.load_policy(run_dir)
    summary = evaluation(task, policy, seed)
    # If a session was killed, what it used is not known.
    whole = sum(session.get("steps", 0) for session in sessions) == policy.step

    def total(name: str, digits: int) -> float | None:
        return round(sum(session[name] for session in sessions), digits) if whole else None

    seconds = total("train_seconds", 4)
    return {
        "score": summary[task.metric],
        "last_100": round(mean_return(last), 4) if last else None,
        "steps_per_second": round(policy.step / seconds) if seconds else None,
        "wall_seconds": total("wall_seconds", 1),
        "compile_seconds": total("compile_seconds", 1),
        "sessions": len(sessions) if whole else None,
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024) if whole else None,
        "evaluation": summary,
        "also_on": {env: evaluation(task, policy, seed, env)[task.metric] for env in task.also_on},
        "curve": learning_curve(rows),
        **circumstances(),
        "script": "benchmarks/suite.py",
        "cores": cores(),
    }


def evaluation(task: Task, policy: proximo.Policy, seed: int, env: str | None = None) -> dict[str, Any]:
    """The summary of the episodes that judge the policy of a seed. None: they are played on the environment of the training."""
    greedy, first = task.policy == "greedy", EVALUATION_SEEDS + seed
    return proximo.evaluate(policy, task.episodes, deterministic=greedy, seed=first, env_settings=task.unseen, env=env).summary()


def main() -> None:
    """Train and evaluate the seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", type=Path)
    parser.add_argument("task")
    parser.add_argument("seed", type=int)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    suite, name = load_suite(arguments.suite), arguments.suite.stem
    task = suite.tasks[arguments.task]
    folder = arguments.work / name
    config = config_of(task, arguments.task, arguments.seed, folder)
    shared = described(task, config)
    if str(arguments.seed) in recorded_seeds(arguments.out, arguments.task, shared):
        return
    run_dir = folder / run_directory.file_name(config.env.id) / config.run.name
    sessions = train(config, run_dir)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the evaluation takes less time than the training that it would lose
    row = row_of(task, arguments.seed, run_dir, sessions)
    about = {"suite": name, "command": f"python benchmarks/suite.py {name}"}
    add_result(arguments.out, about, arguments.task, shared, arguments.seed, row)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # before or after the training, which saves itself
        sys.exit(128 + signal.SIGINT)
