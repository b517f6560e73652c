"""Test whether the policy learns to repeat its observation, for each kind of action, in the setting of a test of Stable-Baselines3.

    python benchmarks/identity.py [--kinds Discrete MultiDiscrete MultiBinary Box] [--seeds 0-9] [--out benchmarks/results/identity.json]
        [--sb3-python VENV/bin/python]

One environment, rollouts of 256 steps, batches of 64, 4 epochs, the learning rates, discounts and numbers of steps of SB3's test
(identity_envs.py), 64-64 tanh; greedy over 20 episodes on other seeds; the mark is a mean above 90 of 100. SB3's test tries one
seed; here every seed is shown. With --sb3-python, SB3 also trains on the same environments and seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import proximo
from identity_envs import BATCH_SIZE, EPISODES, KINDS, MARK, NUM_EPOCHS, NUM_STEPS, SETTINGS
from measurements import circumstances, parse_seeds, train
from proximo.backends import make_backend
from proximo.collect.environment import environment
from proximo.errors import ProximoError
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.evaluation.evaluators import make_evaluator
from proximo.jax_setup import prepare_jax
from suite_tasks import EVALUATION_SEEDS

HERE = Path(__file__).parent


def measure(kind: str, seeds: list[int]) -> dict[str, Any]:
    """The mean return of every seed's final policy."""
    setting = SETTINGS[kind]
    settings = {
        "num_envs": 1,
        "num_workers": 0,
        "num_steps": NUM_STEPS,
        "num_minibatches": NUM_STEPS // BATCH_SIZE,
        "num_epochs": NUM_EPOCHS,
        "learning_rate": setting["learning_rate"],
        "gamma": setting["gamma"],
        "total_steps": setting["steps"],
        "eval_episodes": 0,
        "normalize_observation": False,
        "normalize_reward": False,
    }
    config = proximo.make_config(f"identity_envs:{KINDS[kind].__name__}", settings, preset=False)
    env = environment(config)
    program = make_backend(config, env)
    evaluate = make_evaluator(env, config, EPISODES)
    program.prepare(lambda: program.start(seeds[:1]))
    scores = {}
    for seed in seeds:
        policy = train(program, seed).learner.policy
        scores[seed] = float(evaluate(policy, EVALUATION_SEEDS + seed, EVALUATION_STREAM).summary()["return_mean"])
    program.close()
    evaluate.close()
    return {"settings": settings, "scores": scores}


def peer(python: str, kind: str, seeds: list[int]) -> dict[str, Any]:
    """The same by SB3."""
    command = [python, str(HERE / "peers/sb3_identity.py"), "--kind", kind, "--seeds", *map(str, seeds)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    line = json.loads(done.stdout.strip().splitlines()[-1])
    return {**line, "scores": {int(seed): score for seed, score in line["scores"].items()}}


def row(kind: str, who: str, scores: dict[int, float]) -> str:
    reached = sum(score > MARK for score in scores.values())
    own = scores.get(int(SETTINGS[kind]["seed"]))
    shown = " ".join(f"{score:.1f}" for score in scores.values())
    return f"| {kind} | {who} | {'–' if own is None else f'{own:.1f}'} | {shown} | {min(scores.values()):.1f} | {reached} of {len(scores)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", type=parse_seeds, default="0-9", help="as 0-9 or 0-4,7")
    parser.add_argument("--sb3-python", help="interpreter of the environment with Stable-Baselines3")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    prepare_jax()
    results = {}
    print("| Action | | Seed of SB3's test | Seeds | Worst | Above 90 |\n|---|---|---|---|---|---|", flush=True)
    for kind in options.kinds:
        try:
            results[kind] = {"proximo": measure(kind, options.seeds)}
            print(row(kind, "proximo", results[kind]["proximo"]["scores"]), flush=True)
        except ProximoError as error:
            print(f"| {kind} | proximo | {error} | | | |", flush=True)
            results[kind] = {"proximo": {"error": str(error)}}
        if options.sb3_python:
            results[kind]["sb3"] = peer(options.sb3_python, kind, options.seeds)
            print(row(kind, "SB3", results[kind]["sb3"]["scores"]), flush=True)
    if options.out:
        held = json.loads(options.out.read_text())["kinds"] if options.out.is_file() else {}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        record = {**circumstances(), "script": "benchmarks/identity.py", "mark": MARK, "kinds": {**held, **results}}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
