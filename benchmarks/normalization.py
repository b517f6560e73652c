"""Does normalization of observations and rewards belong in the defaults? Train with the default settings, with and without it.

    python benchmarks/normalization.py [ENV …] [--seeds 0-2] [--out benchmarks/results/normalization.json]
    python benchmarks/normalization.py --show      # prints the table of the file; nothing is trained

The trainings have the default settings of proximo, without a preset. They differ in normalize_observation and normalize_reward only.
The final policy is evaluated greedily on seeds that are used nowhere else. Finished seeds are kept: the script may be interrupted and
started again. The last tasks have unusual scales (``scaled_envs.py``).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from measurements import circumstances, parse_seeds, train
from proximo.backends import make_backend
from proximo.collect.environment import environment
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.evaluation.evaluators import make_evaluator
from proximo.jax_setup import prepare_jax
from proximo.settings import make_config
from suite_tasks import EVALUATION_SEEDS

HERE = Path(__file__).parent
TASKS = {
    "gymnax:CartPole-v1": 200_000,
    "gymnax:Acrobot-v1": 300_000,
    "gymnax:Pendulum-v1": 500_000,
    "gymnax:MountainCar-v0": 500_000,
    "gymnax:MountainCarContinuous-v0": 300_000,
    "LunarLander-v3": 300_000,
    "InvertedDoublePendulum-v5": 200_000,
    "HalfCheetah-v5": 300_000,
    "scaled_envs:Tank": 200_000,
    "scaled_envs:cartpole_in_millions": 200_000,
    "scaled_envs:cartpole_with_large_rewards": 200_000,
    "scaled_envs:pendulum_with_small_rewards": 500_000,
}
"""Environment steps of a training."""
REWARD_UNITS = {"scaled_envs:cartpole_with_large_rewards": 1e5, "scaled_envs:pendulum_with_small_rewards": 1e-3}
"""The table gives returns in units of the original rewards."""
VARIANTS = {
    "neither": {"normalize_observation": "false", "normalize_reward": "false"},
    "observations": {"normalize_observation": "true", "normalize_reward": "false"},
    "rewards": {"normalize_observation": "false", "normalize_reward": "true"},
    "both": {"normalize_observation": "true", "normalize_reward": "true"},
}
EPISODES = 50


def measure(env_id: str, variant: str, seeds: list[int]) -> dict[str, Any]:
    """Train and evaluate each seed. Return the mean return of each final policy."""
    settings = {"total_steps": str(TASKS[env_id]), "eval_episodes": "0", **VARIANTS[variant]}
    config = make_config(env_id, settings, preset=False)
    env = environment(config)
    program = make_backend(config, env, stacked=False)
    evaluate = make_evaluator(env, config, EPISODES)
    start, scores = time.perf_counter(), {}
    for seed in seeds:
        state = train(program, seed)
        scores[str(seed)] = evaluate(state.learner.policy, EVALUATION_SEEDS + seed, EVALUATION_STREAM).summary()["return_mean"]
    program.close()
    evaluate.close()
    return {"scores": scores, "steps": TASKS[env_id], "seconds": round(time.perf_counter() - start, 1), **circumstances()}


def table(results: dict[str, Any]) -> str:
    """A row for each environment, with the mean return of each variant and its worst seed in parentheses."""
    lines = [f"| Environment | Steps | {' | '.join(VARIANTS)} |", f"|---|---|{'---|' * len(VARIANTS)}"]
    for env_id in [name for name in TASKS if name in results]:
        cells = []
        for variant in VARIANTS:
            scores = list(results[env_id].get(variant, {"scores": {}})["scores"].values())
            unit = REWARD_UNITS.get(env_id, 1.0)
            cells.append(f"{np.mean(scores) / unit:.4g} ({min(scores) / unit:.4g})" if scores else "")
        lines.append(f"| {env_id} | {TASKS[env_id]:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the environments that are named (all), or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env_ids", nargs="*", metavar="ENV", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("0-2"))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "normalization.json")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    if not arguments.show:
        for env_id in arguments.env_ids or TASKS:
            for variant in VARIANTS:
                record = results.setdefault(env_id, {}).get(variant, {"scores": {}})
                missing = [seed for seed in arguments.seeds if str(seed) not in record["scores"]]
                if missing:
                    new = measure(env_id, variant, missing)
                    results[env_id][variant] = {**new, "scores": {**record["scores"], **new["scores"]}}
                    print(env_id, variant, [round(x, 1) for x in new["scores"].values()], new["seconds"], "s", flush=True)
                    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    prepare_jax()
    main()
