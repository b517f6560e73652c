"""Train presets on several seeds, and evaluate the final policies on environment seeds that are used nowhere else.

    python benchmarks/learning.py gymnax:CartPole-v1 proximo:PocMemory --seeds 0-9 --episodes 500

Each seed trains like an ordinary run of that seed, one after the other. No checkpoint is selected: the policy after the last update
is evaluated, with greedy actions unless the task uses sampled ones. A mark is met if every seed reaches it within its budget of
environment steps. Seconds are those of the training, without compilation. Presets are tuned on seeds from 100 up; seeds 0-9 are for
the report. With --join, several processes can measure seeds of one task. --show prints the table of the file again and draws every
seed and its mark.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from filelock import FileLock

import proximo
from learning_report import plot, table
from proximo import config as settings
from proximo.backends import Backend, make_backend
from proximo.collect.environment import environment
from proximo.config import Config, presets
from proximo.config.loading import make_config
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.evaluation.evaluators import make_evaluator
from proximo.jax_setup import prepare_jax
from proximo.types import TrainState

EVALUATION_SEEDS = 1_000_000
"""Seed s is evaluated with the seed EVALUATION_SEEDS + s, which no training and no tuning uses."""


@dataclass(frozen=True)
class Mark:
    """A return or success rate that every seed must reach in a training of at most ``steps``."""

    figure: float
    steps: int


@dataclass(frozen=True)
class Task:
    """How a final policy is evaluated, and its marks: ``must`` is the mark of the tables, ``aim`` is stricter."""

    must: Mark | None
    aim: Mark | None
    metric: str = "return_mean"
    stochastic: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of a variant, in addition to the preset's. The name of a variant has a comma."""
    unseen: dict[str, str] = field(default_factory=dict)
    """``env_settings`` of the evaluation: the levels that the training has not used."""


HARD = {
    "env_settings": "show_steps=0,freeze_steps=12",
    "total_steps": "100000",
    "ent_coef": "linear(0.05, 0)",
}
"""PocMemory that shows its goals only in the first observation, followed by 12 steps without a move. It needs longer exploration than the preset has."""

MINGRU = {"memory_layers": "2", "learning_rate": "linear(4e-3, 0)"}
"""With one layer, about half of a minGRU's answers in RepeatPrevious are correct, because its gate does not read the state."""

PICTURE = {"env_settings": "image=true", "learning_rate": "linear(5e-4, 0)"}

SHORT = {"total_steps": "1000000", "gamma": "0.999"}
PICTURES = {
    "": {"total_steps": "1998848", "gamma": "0.999"},
    ", 1M steps": SHORT,
    ", 1M steps, one core": SHORT,
    ", 800k steps": {},
}
"""The rows with pictures: with earlier discounts and numbers of steps of the preset, and with the current ones."""

TASKS = {
    "gymnax:CartPole-v1": Task(Mark(475, 250_000), Mark(475, 100_000)),
    "gymnax:Pendulum-v1": Task(Mark(-200, 500_000), Mark(-160, 500_000)),
    "gymnax:Acrobot-v1": Task(Mark(-90, 500_000), Mark(-80, 500_000)),
    "gymnax:MountainCar-v0": Task(Mark(-125, 1_000_000), Mark(-115, 1_000_000)),
    "gymnax:MountainCarContinuous-v0": Task(Mark(90, 1_000_000), Mark(90, 1_000_000)),
    "CartPole-v1": Task(Mark(495, 100_000), Mark(500, 100_000)),
    "Pendulum-v1": Task(Mark(-200, 200_000), Mark(-172, 200_000)),
    "Acrobot-v1": Task(Mark(-90, 500_000), Mark(-73.5, 500_000)),
    "MountainCar-v0": Task(Mark(-120, 1_000_000), Mark(-110.4, 1_000_000)),
    "LunarLander-v3": Task(Mark(220, 1_000_000), Mark(242.1, 1_000_000)),
    "proximo:PocMemory": Task(Mark(0.995, 12_000), Mark(0.995, 8_000), "success_rate", stochastic=True),
    "proximo:PocMemory, hard": Task(Mark(0.98, 300_000), Mark(0.98, 100_000), "success_rate", stochastic=True, settings=HARD),
    "proximo:PocMemory, hard, sequences of 1": Task(
        None, None, "success_rate", stochastic=True, settings={**HARD, "sequence_length": "1"}
    ),
    "gymnax:CartPoleNoVel-v1, 200 steps": Task(
        Mark(195, 150_000), Mark(195, 60_000), settings={"max_episode_steps": "200", "total_steps": "60000"}
    ),
    "gymnax:CartPoleNoVel-v1": Task(Mark(475, 150_000), Mark(495, 100_000)),
    "CartPoleNoVel-v1": Task(Mark(475, 150_000), Mark(495, 100_000)),
    "MountainCarContinuousNoVel-v0": Task(Mark(90, 300_000), Mark(90, 150_000)),
    "minigrid:MemoryS9": Task(Mark(0.95, 2_000_000), Mark(0.95, 800_000), "success_rate", unseen={"levels": "held_out"}),
    "minigrid:MemoryS13Random": Task(
        None, Mark(0.9, 2_000_000), "success_rate", settings={"total_steps": "1600000"}, unseen={"levels": "held_out"}
    ),
    **{
        f"minigrid:MemoryS9, image{variant}": Task(
            None, Mark(0.95, 2_000_000), "success_rate", settings={**PICTURE, **settings}, unseen={"levels": "held_out"}
        )
        for variant, settings in PICTURES.items()
    },
    "gymnax:PendulumNoVel-v1": Task(Mark(-250, 400_000), Mark(-200, 400_000)),
    **{
        f"proximo:RepeatPrevious, {cell}{', lag 16' if lag == 16 else ''}": Task(
            Mark(0.98, 1_000_000) if lag == 4 and cell != "mingru" else None,
            Mark(0.98, 1_000_000) if lag == 16 else None,
            settings={"memory": cell, "env_settings": f"lag={lag}", **(MINGRU if cell == "mingru" else {})},
        )
        for cell in ("gru", "lstm", "mingru", "lru", "gtrxl")
        for lag in (4, 16)
    },
}


def parse_seeds(text: str) -> list[int]:
    """``0-9``, ``3`` or ``0-4,7`` as a list."""
    ends = [part.partition("-") for part in text.split(",")]
    return [seed for first, _, last in ends for seed in range(int(first), int(last or first) + 1)]


def measure(env_id: str, seeds: list[int], episodes: int, given: dict[str, str]) -> dict[str, Any]:
    """Train and evaluate every seed. Return the record for the results file."""
    task, config, about = prepare(env_id, episodes, given)
    env = environment(config)
    program = make_backend(config, env, stacked=False)
    program.compile(program.start(seeds[:1]))
    compile_seconds = program.compile_seconds
    evaluated_on = settings.override(config, {"env_settings": task.unseen}) if task.unseen else config
    evaluate = make_evaluator(environment(evaluated_on), evaluated_on, episodes)
    rows = []
    for seed in seeds:
        start = time.perf_counter()
        state = train(program, seed)
        seconds = time.perf_counter() - start
        summary = evaluate(state.learner.policy, EVALUATION_SEEDS + seed, EVALUATION_STREAM, not task.stochastic).summary()
        row = {"seed": seed, "score": summary[task.metric], "seconds": round(seconds, 2), "healthy": bool(state.healthy)}
        rows.append({**row, "evaluation": summary})
        print(f"  {env_id} seed {seed}: {task.metric} {summary[task.metric]:.4g}, {seconds:.1f} s", flush=True)
    program.close()
    evaluate.close()
    return summed_up({**about, "compile_seconds": round(compile_seconds, 1), "seeds": rows, **circumstances()}, task)


def prepare(env_id: str, episodes: int, given: dict[str, str]) -> tuple[Task, Config, dict[str, Any]]:
    """The task, its settings, and the part of a record that describes the measurement."""
    task = TASKS.get(env_id, Task(None, None))
    config = make_config(env_id.partition(",")[0], {**task.settings, **given})
    about = {
        "metric": task.metric,
        "policy": "sampled" if task.stochastic else "greedy",
        "episodes": episodes,
        "steps": config.total_updates * config.batch_size,
        "settings": settings.to_mapping(config),
        "set": given,
    }
    return task, config, about


def command(env_id: str, record: dict[str, Any]) -> str:
    """The command that measures the seeds of ``record`` again."""
    seeds = [row["seed"] for row in record["seeds"]]
    whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
    spoken = f"{seeds[0]}-{seeds[-1]}" if whole else ",".join(map(str, seeds))
    given = [f"{name}={value}" for name, value in record["set"].items()]
    words = ["python", "benchmarks/learning.py", env_id, "--seeds", spoken, "--episodes", str(record["episodes"])]
    return shlex.join([*words, *(["--set", *given] if given else [])])


def summed_up(record: dict[str, Any], task: Task) -> dict[str, Any]:
    """``record`` with statistics over its seeds, and its marks."""
    scores = [row["score"] for row in record["seeds"]]
    marks = {name: verdict(mark, scores, record["steps"]) for name in ("must", "aim") if (mark := getattr(task, name, None))}
    seconds = round(float(np.mean([row["seconds"] for row in record["seeds"]])), 2)
    return {**record, "worst": min(scores), "mean": float(np.mean(scores)), "marks": marks, "seconds_per_seed": seconds}


def joined(held: dict[str, Any], new: dict[str, Any], task: Task) -> dict[str, Any]:
    """The seeds of both records. If both contain a seed, that of ``new`` is used."""
    rows = {row["seed"]: row for record in (held, new) for row in record["seeds"]}
    return summed_up({**new, "seeds": [rows[seed] for seed in sorted(rows)]}, task)


ALIKE = ("metric", "policy", "episodes", "steps", "settings", "versions", "device")
"""What seeds must have in common to be shown as one row."""


def differences(held: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Names of the entries that differ between ``held`` and ``record``. If there are any, the records must not be joined."""
    return [name for name in ALIKE if held.get(name) != json.loads(json.dumps(record[name]))]


def train(program: Backend, seed: int) -> TrainState:
    """The state after the last update. It equals that of `proximo train --seed` bit for bit, independent of the division into calls.

    ``make_train`` would differ by rounding, and after enough updates by its policy.
    """
    state = program.start([seed])
    left = program.config.total_updates
    while left:
        count = min(left, program.capacity)
        state, _ = program.advance(state, count)  # an environment that fails is an error here
        left -= count
    return state


def verdict(mark: Mark, scores: list[float], steps: int) -> dict[str, Any]:
    """The mark, and whether every seed reached it within the budget."""
    return {**asdict(mark), "holds": steps <= mark.steps and min(scores) >= mark.figure}


def circumstances() -> dict[str, Any]:
    """Where, when and with what a measurement was made."""
    return {
        "date": datetime.date.today().isoformat(),
        "versions": {"proximo": proximo.__version__, "jax": jax.__version__, "python": platform.python_version()},
        "cpu_count": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),  # if other work adds to it, the seconds are too long
        "device": jax.devices()[0].device_kind,
        "script": "benchmarks/learning.py",
    }


def save(path: Path, env_id: str, record: dict[str, Any], join: bool) -> None:
    """Save ``record`` in the file, which keeps the records of other environments. With ``join``, it also keeps the other seeds of this
    environment. Several processes may save at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        held = json.loads(path.read_text()) if path.is_file() else {}
        if join and env_id in held:
            if unlike := differences(held[env_id], record):  # another process has written since
                aside = path.with_suffix(".unlike.json")
                aside.write_text(json.dumps({env_id: record}, indent=1) + "\n")
                sys.exit(f"{path} now contains {env_id} with other {', '.join(unlike)}: the new seeds were saved to {aside}")
            record = joined(held[env_id], record, TASKS.get(env_id, Task(None, None)))
        record = {**record, "command": command(env_id, record)}
        path.write_text(json.dumps(dict(sorted({**held, env_id: record}.items())), indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env_ids", nargs="*", metavar="ENV_ID")
    parser.add_argument("--seeds", type=parse_seeds, default="0-9", help="as 0-9 or 0-4,7")
    parser.add_argument("--episodes", type=int, default=500, help="episodes of the evaluation of each final policy")
    parser.add_argument("--out", type=Path, help="JSON file to write; it keeps the environments that are not measured now")
    parser.add_argument("--join", action="store_true", help="keep the seeds of a task that --out already contains")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings in addition to the preset's, for tuning"
    )
    parser.add_argument("--show", action="store_true", help="print the table and draw the plot of --out; nothing is trained")
    arguments = parser.parse_args()
    if arguments.show:
        if not arguments.out:
            parser.error("--show needs --out FILE")
        results = json.loads(arguments.out.read_text())
        if absent := [env_id for env_id in arguments.env_ids if env_id not in results]:
            parser.error(f"{arguments.out} does not contain {', '.join(absent)}")
        results = {env_id: results[env_id] for env_id in arguments.env_ids or results}
        print(table(results))
        plot(results, arguments.out.with_suffix(".png"))
        return
    if not arguments.env_ids:
        parser.error("name the environments to train on, or --show")
    given = dict(text.split("=", 1) for text in arguments.set)
    missing = [env_id for env_id in arguments.env_ids if env_id.partition(",")[0] not in presets.names()]
    if missing:
        parser.error(f"no preset for {', '.join(missing)}; there are presets for {', '.join(presets.names())}")
    prepare_jax()
    if arguments.join:
        refuse_unlike(parser, arguments, given)
    results = {}
    for env_id in arguments.env_ids:
        results[env_id] = measure(env_id, arguments.seeds, arguments.episodes, given)
        if arguments.out:
            save(arguments.out, env_id, results[env_id], arguments.join)
    print(table(results))


def refuse_unlike(parser: argparse.ArgumentParser, arguments: argparse.Namespace, given: dict[str, str]) -> None:
    """Ends the program, before anything is trained, where the seeds of a task could not stand beside those that are there."""
    if not arguments.out:
        parser.error("--join needs --out: which file?")
    held = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    for env_id in arguments.env_ids:
        about = {**prepare(env_id, arguments.episodes, given)[2], **circumstances()}
        if env_id in held and (unlike := differences(held[env_id], about)):
            parser.error(f"--join: {arguments.out} has {env_id} with other {', '.join(unlike)}: leave --join out to replace it")


if __name__ == "__main__":
    main()
