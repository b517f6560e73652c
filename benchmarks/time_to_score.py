"""Time from a cold shell to a policy with the published score, compared with Stable-Baselines3 and the settings of its zoo.

    python benchmarks/time_to_score.py --sb3-python VENV/bin/python --share 0.1  # on a quiet machine
    python benchmarks/time_to_score.py --show

TASKS names the suite of each task. The suite has the command of the training, and the score of every seed after it. The time is that of
this command in a new process: its imports, its compilation, its evaluations during and after the training. It is measured with an empty
compilation cache, and then with a filled one. SB3 trains as many steps as in the RL Zoo; whether it reaches the score is not checked. With
--share it trains a part of the steps, and the rest is extrapolated.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measurements import circumstances
from proximo.tracking.progress import duration
from suite_pages import command, first_seed
from suite_tasks import Task, load_suite, read_results

HERE = Path(__file__).parent
OUT = HERE / "results" / "time_to_score.json"
TASKS = {
    "CartPole-v1, 61k steps": ("learning", 500.0),
    "LunarLander-v3": ("learning", 242.1),
    "HalfCheetah-v5": ("mujoco", 5819.0),
    "Hopper-v5": ("mujoco", 2410.0),
    "BipedalWalker-v3": ("box2d", 287.9),
}
"""The suite of each task, and the score that the RL Zoo publishes (benchmark.md; versions 1 and 2 of CartPole and LunarLander, 3 of MuJoCo)."""


def ours(task: Task, seed: int, folder: str, environment: dict[str, str]) -> dict[str, Any]:
    """One training as a user starts it."""
    words = [sys.executable, "-m", *shlex.split(command(task, seed)), "--json", "--runs-dir", f"{folder}/runs"]
    started = time.perf_counter()
    done = subprocess.run(words, capture_output=True, env=environment, text=True)
    wall = round(time.perf_counter() - started, 1)
    if done.returncode:
        sys.exit(f"{shlex.join(words)} failed:\n{done.stderr}")
    return {"wall_seconds": wall, **{name: json.loads(done.stdout)[name] for name in ("steps", "compile_seconds", "return_mean")}}


def measure(name: str, task: Task, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The times of a task, which is called ``name``, with ``seed``."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PROXIMO_CACHE_DIR": f"{folder}/cache"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would come first
        row = {"first": ours(task, seed, folder, environment), "next": ours(task, seed, folder, environment)}
    peer = [arguments.sb3_python, str(HERE / "peers/sb3_zoo.py"), task.env]
    share = 1.0 if name in arguments.whole else arguments.share
    peers = []
    for threads in arguments.threads:
        words = [*peer, "--threads", str(threads), "--share", str(share)]
        peers.append(json.loads(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout))
    best = min(peers, key=lambda line: line["wall_seconds"])
    return {**row, "sb3": best, "sb3_share": share, "ratio": round(best["wall_seconds"] / row["first"]["wall_seconds"], 1)}


def record_of(name: str) -> dict[str, Any]:
    """What the suite of a task has recorded of it."""
    return read_results(HERE / "results" / f"suite_{TASKS[name][0]}.json")["tasks"].get(name, {"seeds": {}})


def table(recorded: dict[str, Any]) -> str:
    """The times beside the scores, in Markdown."""
    lines = [
        "| Task | Score to reach | Steps | Seeds of the suite that reach it | Worst seed | First start | Last evaluation of the first start | Next start "
        "| SB3 with the RL Zoo's settings | Ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in recorded["tasks"].items():
        score, scores = TASKS[name][1], [seed["score"] for seed in record_of(name)["seeds"].values()]
        worst = f"{min(scores):.4g}" if scores else "–"
        peer = f"{duration(row['sb3']['wall_seconds'])}{'' if row['sb3_share'] == 1 else ' (extrapolated)'}, {row['sb3']['steps']:,} steps"
        reached = row["first"]["return_mean"] >= score
        first, following = (duration(row[start]["wall_seconds"]) for start in ("first", "next"))
        lines.append(
            f"| `{name}` | {score:g} | {row['first']['steps']:,} | {sum(x >= score for x in scores)} of {len(scores)} | {worst} "
            f"| {'' if reached else 'not reached after '}{first} | {row['first']['return_mean']:.4g} | {following} | {peer} "
            f"| {format(row['ratio'], 'g') if reached else '–'} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", help="Python of an environment with Stable-Baselines3 (peers/README.md)")
    parser.add_argument("--only", nargs="+", choices=TASKS, metavar="TASK", help="measure only these tasks")
    parser.add_argument("--share", type=float, default=1.0, help="share of SB3's training that is run, 0 … 1")
    parser.add_argument(
        "--whole",
        nargs="+",
        choices=TASKS,
        default=[next(iter(TASKS))],
        metavar="TASK",
        help="tasks of which SB3 trains all steps",
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads of SB3; the faster counts")
    parser.add_argument("--show", action="store_true", help="print the table; nothing is measured")
    arguments = parser.parse_args()
    recorded = json.loads(OUT.read_text()) if OUT.is_file() else {"tasks": {}}
    if not arguments.show:
        if not arguments.sb3_python:
            parser.error("--sb3-python is missing: the Python of an environment with Stable-Baselines3 (peers/README.md).")
        for name in arguments.only or TASKS:
            task = load_suite(HERE / "suites" / f"{TASKS[name][0]}.yaml").tasks[name]
            recorded["tasks"][name] = {**circumstances(), **measure(name, task, first_seed(task, record_of(name)), arguments)}
            OUT.write_text(json.dumps(recorded, indent=1) + "\n")
    print(table(recorded))


if __name__ == "__main__":
    main()
