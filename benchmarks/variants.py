"""Compare variants of the algorithm and of the policy with the plain settings, with three seeds in one program.

    python benchmarks/variants.py [NAME …] [--seeds 0-2] [--episodes 100] [--out benchmarks/results/variants.json]
    python benchmarks/variants.py --show      # prints the table of the file; nothing is trained

The trainings are short and use the presets' settings. For each seed, the final policy is evaluated greedily on environment seeds that are used nowhere else. The
mean of the training returns over the whole run shows how fast the policy learned. Three seeds show whether a variant learns; they do not rank variants.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from measurements import circumstances, parse_seeds
from proximo import config as settings
from proximo.backends import make_backend
from proximo.collect.environment import environment
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.evaluation.evaluators import make_evaluator
from proximo.jax_setup import prepare_jax
from proximo.settings import make_config
from suite_tasks import EVALUATION_SEEDS

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "examples"))  # the worked examples of docs/custom-losses.md
PENDULUM = {"id": "gymnax:Pendulum-v1", "total_steps": "128000"}
CARTPOLE = {"id": "gymnax:CartPole-v1", "total_steps": "61440"}
PARTS = {
    "id": "privileged_envs:CartPoleInParts", "total_steps": "163840", "num_envs": "32", "num_steps": "128", "num_epochs": "4",
    "num_minibatches": "4", "learning_rate": "linear(1e-3, 0)", "normalize_observation": "true", "normalize_reward": "true",
    "memory": "gru", "memory_size": "32", "hidden_sizes": "32", "sequence_length": "32",
}  # fmt: skip
VARIANTS: dict[str, dict[str, str]] = {
    "pendulum: plain": PENDULUM,
    "pendulum: beta": {**PENDULUM, "distribution": "beta"},
    "pendulum: tanh": {**PENDULUM, "action_mapping": "tanh"},
    "pendulum: state-dependent std": {**PENDULUM, "state_dependent_std": "true"},
    "pendulum: learning rate adapted by KL": {**PENDULUM, "learning_rate": "1e-3", "desired_kl": "0.01"},
    "pendulum: constant learning rate": {**PENDULUM, "learning_rate": "1e-3"},
    "cartpole: plain": CARTPOLE,
    "cartpole: KL penalty, adaptive": {**CARTPOLE, "objective": "kl_penalty"},
    "cartpole: KL penalty, fixed 1": {**CARTPOLE, "objective": "kl_penalty", "kl_target": "0"},
    "cartpole: dual clip 3": {**CARTPOLE, "dual_clip": "3"},
    "cartpole: twice the learning rate for the critic": {**CARTPOLE, "critic_learning_rate": "linear(4e-3, 0)"},
    "cartpole: SPO": {**CARTPOLE, "objective": "custom_losses:spo"},
    "cartpole: custom encoder": {**CARTPOLE, "encoder": "custom_losses:Encoder"},
    "cartpole: custom encoder, reconstruction": {
        **CARTPOLE,
        "encoder": "custom_losses:Encoder",
        "extra_loss": "custom_losses:reconstruction",
    },
    "cartpole without velocities, GRU: plain": {**PARTS, "env_settings": "blind=true"},
    "cartpole without velocities, GRU: critic observes them": {**PARTS, "privileged": "velocities"},
}


def measure(changed: dict[str, str], seeds: list[int], episodes: int) -> dict[str, Any]:
    """Train all seeds of a variant. Return the evaluations of the final policies, the training returns, and the metrics of the last updates."""
    config = make_config(changed["id"], {"eval_episodes": "0", **{k: v for k, v in changed.items() if k != "id"}})
    env = environment(config)
    program = make_backend(config, env, stacked=True)
    state = program.prepare(lambda: program.start(seeds), len(seeds))
    left, began, rows = config.total_updates, time.perf_counter(), []
    while left:
        count = min(left, program.capacity)
        state, metrics = program.advance(state, count)
        rows.append(metrics)
        left -= count
    seconds = time.perf_counter() - began
    metrics = {name: np.concatenate([row[name] for row in rows], axis=1) for name in rows[0]}
    evaluate = make_evaluator(env, config, episodes)
    scores = [
        evaluate(program.seed_state(state, i).learner.policy, EVALUATION_SEEDS + seed, EVALUATION_STREAM).summary()["return_mean"]
        for i, seed in enumerate(seeds)
    ]
    returns = np.where(metrics["rollout/episodes"] > 0, metrics["rollout/return_mean"], np.nan)
    last = slice(-max(1, returns.shape[1] // 10), None)
    names = ("train/approx_kl", "train/entropy", "train/learning_rate", "train/kl_coef", "train/clip_fraction")
    return {
        "scores": scores,
        "mean": float(np.mean(scores)),
        "training_returns": [float(x) for x in np.nanmean(returns, axis=1)],
        "last_tenth": {name: float(np.nanmean(metrics[name][:, last])) for name in names if name in metrics},
        "settings": settings.to_mapping(config),
        "seconds": seconds,
        "seeds": seeds,
        "episodes": episodes,
        **circumstances(),
        "script": "benchmarks/variants.py",
    }


def table(results: dict[str, Any]) -> str:
    """A row for each variant."""
    lines = [
        "| Task: variant | Return by seed | Mean | Mean training return of the run | KL at the end |",
        "|---|---|---|---|---|",
    ]
    for name, result in results.items():
        scores = " ".join(f"{score:.0f}" for score in result["scores"])
        lines.append(
            f"| {name} | {scores} | {result['mean']:.0f} | {np.mean(result['training_returns']):.0f} "
            f"| {result['last_tenth']['train/approx_kl']:.4f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure the variants that are named (all), or show what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("0-2"))
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "variants.json")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for name in [] if arguments.show else arguments.names or VARIANTS:
        results[name] = measure(VARIANTS[name], arguments.seeds, arguments.episodes)
        print(name, [round(score) for score in results[name]["scores"]], round(results[name]["seconds"]), "s", flush=True)
        ordered = {name: results[name] for name in VARIANTS if name in results}
        arguments.out.write_text(json.dumps(ordered, indent=1) + "\n")
    print(table({name: results[name] for name in VARIANTS if name in results}))


if __name__ == "__main__":
    prepare_jax()
    main()
