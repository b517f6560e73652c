"""Effect of sequence length and refreshing: the pendulum without velocities over ten seeds, with one setting changed at a time.

    python benchmarks/memory_ablation.py [--seeds 0-9] [--episodes 200] [--out benchmarks/results/memory_ablation.json]
    python benchmarks/memory_ablation.py --show      # prints the table and draws the plot of the file; nothing is trained

gymnax:PendulumNoVel-v1 with its preset (rollouts of 192 steps, so that sequences of 64 fit), all seeds of a variant in one program. The final
policy is evaluated greedily on environment seeds that are used nowhere else. Intervals: 95 %, by the percentile bootstrap of the mean over seeds.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from measurements import circumstances, parse_seeds
from proximo import config as settings
from proximo.backends import make_backend
from proximo.collect.environment import environment
from proximo.evaluation.episodes import EVALUATION_STREAM, bootstrap_interval, interquartile_mean
from proximo.evaluation.evaluators import make_evaluator
from proximo.jax_setup import prepare_jax
from proximo.settings import make_config
from suite_tasks import EVALUATION_SEEDS

HERE = Path(__file__).parent
ENV = "gymnax:PendulumNoVel-v1"
BASE = {"num_steps": "192", "sequence_length": "64", "eval_episodes": "0"}
VARIANTS: dict[str, dict[str, str]] = {
    "sequences of 64, memory as stored": {},
    "sequences of 64, memory refreshed": {"refresh_memory": "true"},
    "sequences of 8, memory as stored": {"sequence_length": "8"},
    "sequences of 8, memory refreshed": {"sequence_length": "8", "refresh_memory": "true"},
    "whole rollouts (192)": {"sequence_length": "0"},
    "sequences of 64, advantages as they are": {"normalize_advantage": "none"},
    "sequences of 64, advantages normalised over the rollout": {"normalize_advantage": "batch"},
}
CURVE_POINTS = 20
"""So that each has several rollouts: all environments begin together, and some rollouts of 192 steps end no episode of 200."""


def measure(changed: dict[str, str], seeds: list[int], episodes: int) -> dict[str, Any]:
    """Train all seeds of a variant. Return curves of the training returns, evaluations of the final policies, and metrics of the memory."""
    config = make_config(ENV, {**BASE, **changed})
    env = environment(config)
    program = make_backend(config, env, stacked=True)
    state = program.prepare(lambda: program.start(seeds), len(seeds))
    left, returns, staleness = config.total_updates, [], []
    while left:
        count = min(left, program.capacity)
        state, metrics = program.advance(state, count)
        returns.append(np.where(metrics["rollout/episodes"] > 0, metrics["rollout/return_mean"], np.nan))
        staleness.append(metrics["memory/staleness"])
        left -= count
    evaluate = make_evaluator(env, config, episodes)
    scores = [
        evaluate(program.seed_state(state, i).learner.policy, EVALUATION_SEEDS + seed, EVALUATION_STREAM).summary()["return_mean"]
        for i, seed in enumerate(seeds)
    ]
    curves = np.concatenate(returns, axis=1)
    parts = np.array_split(np.arange(curves.shape[1]), CURVE_POINTS)
    return {
        "scores": scores,
        "mean": float(np.mean(scores)),
        "iqm": interquartile_mean(np.array(scores)),
        "ci95": [float(x) for x in bootstrap_interval(np.array(scores))],
        "worst": min(scores),
        "staleness": np.nanmean(np.concatenate(staleness, axis=1), axis=1).tolist(),
        "curve_steps": [int((part[-1] + 1) * config.batch_size) for part in parts],
        "curves": [[round(float(np.nanmean(row[part])), 1) for part in parts] for row in curves],
        "settings": settings.to_mapping(config),
        "seeds": seeds,
        "episodes": episodes,
        **circumstances(),
        "script": "benchmarks/memory_ablation.py",
    }


def command(name: str, record: dict[str, Any]) -> str:
    """The command that measures the variant ``name`` again."""
    seeds, episodes = ",".join(map(str, record["seeds"])), str(record["episodes"])
    return shlex.join(["python", "benchmarks/memory_ablation.py", "--only", name, "--seeds", seeds, "--episodes", episodes])


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown: every seed, worst, interquartile mean, mean with its interval, staleness."""
    lines = ["| | Seeds | Worst | IQM | Mean (95 %) | Staleness |", "|---|---|---|---|---|---|"]
    for name, r in results.items():
        low, high = r["ci95"]
        seeds = " ".join(f"{x:.0f}" for x in r["scores"])
        interval = f"{r['mean']:.0f} ({low:.0f} … {high:.0f})"
        lines.append(f"| {name} | {seeds} | {r['worst']:.0f} | {r['iqm']:.0f} | {interval} | {np.mean(r['staleness']):.3f} |")
    return "\n".join(lines)


def plot(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Above, the training returns of every seed; below, the final policies with the interval of their mean."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter, MaxNLocator

    names = list(results)
    columns = 4
    rows = -(-len(names) // columns)
    figure = plt.figure(figsize=(13, 2.5 * rows + 0.32 * len(names) + 1.0), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[2.5 * rows, 0.32 * len(names) + 1.0])
    axes = above.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names, strict=False):
        r = results[name]
        for curve in r["curves"]:
            axis.plot(r["curve_steps"], curve, color="#2563a8", alpha=0.45, linewidth=1)
        axis.plot(r["curve_steps"], np.mean(r["curves"], axis=0), color="black", linewidth=1.5)
        axis.set_title(name.replace(", ", ",\n", 1), fontsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.tick_params(labelsize=7)
    above.supxlabel("environment steps", fontsize=8)
    above.supylabel("return in training (black: mean of the seeds)", fontsize=8)
    axis = below.subplots()
    for place, name in enumerate(names):
        r = results[name]
        axis.plot(r["ci95"], [place, place], color="black", linewidth=6, alpha=0.25, solid_capstyle="butt")
        axis.plot(r["scores"], [place] * len(r["scores"]), "o", color="#2563a8", markersize=4, alpha=0.7)
        axis.plot(r["iqm"], place, "|", color="#c0392b", markersize=14, markeredgewidth=2)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.tick_params(axis="x", labelsize=8)
    axis.set_xlabel("return of the final policy, greedy (grey: 95 % interval of the mean; red: interquartile mean)", fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=parse_seeds, default="0-9")
    parser.add_argument("--episodes", type=int, default=200, help="episodes of the evaluation of each final policy")
    parser.add_argument(
        "--only", nargs="+", metavar="VARIANT", choices=tuple(VARIANTS), help="measure only these; the file keeps the others"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results/memory_ablation.json")
    parser.add_argument("--show", action="store_true", help="print the table and draw the plot of the file")
    options = parser.parse_args()
    if options.show and not options.out.is_file():
        parser.error(f"--show: there is no {options.out}")
    results = json.loads(options.out.read_text()) if options.out.is_file() else {}
    if not options.show:
        prepare_jax()
        for name in options.only or VARIANTS:
            record = measure(VARIANTS[name], options.seeds, options.episodes)
            results[name] = {**record, "command": command(name, record)}
            results = {key: results[key] for key in VARIANTS if key in results}
            options.out.write_text(json.dumps(results, indent=1) + "\n")
            print(table({name: results[name]}).splitlines()[-1], flush=True)
    print(table(results))
    plot(results, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
