"""``proximo eval``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from proximo.cli import POLICY_HELP, Parser, UsageError, aligned, print_json, print_warnings, quiet_stdout
from proximo.errors import command
from proximo.tracking.progress import amount, number


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo eval",
        description="Evaluate a trained policy on whole episodes, with its most probable actions and with sampled actions.",
        usage="proximo eval RUN [--episodes N] [--greedy | --stochastic] [...]",
    )
    parser.add_argument("run", metavar="RUN", help=POLICY_HELP)
    parser.add_flag("--episodes", "episodes of each policy, greedy and sampled (default 100)", "N", type=int, default=100)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--greedy", action="store_true", help="use only the most probable actions")
    mode.add_argument("--stochastic", action="store_true", help="use only sampled actions")
    parser.add_other_env()
    parser.add_episode_flags()
    parser.add_flag("--num-envs", "environments stepped together (default 0: chosen for speed)", "N", type=int, default=0)
    parser.add_flag("--episodes-file", "write one line of JSON for each episode to FILE", "FILE", type=Path)
    parser.add_runs_dir()
    parser.add_json()
    return parser


def run(arguments: list[str]) -> int:
    """Evaluate a run, or every seed of a training."""
    options = make_parser().parse_args(arguments)
    file = options.episodes_file
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise UsageError(f"Cannot write --episodes-file {file}: expected a file in a folder that exists.")

    from proximo.storage import checkpoint, run_lookup, zoo
    from proximo.storage.named_folders import seed_run_dirs

    path, which = run_lookup.find_run(options.run, Path(options.runs_dir))
    seed_runs = seed_run_dirs(path)
    evaluations = {zoo.label(run_dir): _evaluated(run_dir, which, options) for run_dir in seed_runs or [path]}
    if file is not None:
        _write_lines(file, evaluations)
    best = {name: checkpoint.best_step(Path(name)) for name in evaluations}
    if options.json:
        print_json(as_json(evaluations, best))
        return 0
    for name, evaluation in evaluations.items():
        print(_table(name, evaluation))
    if seed_runs:
        print(_group_table(path, evaluations))
    other_best = [name for name, evaluation in evaluations.items() if best[name] not in (None, evaluation.played["step"])]
    if other_best and "@" not in options.run:
        steps, again = ", ".join(f"{best[name]:,}" for name in other_best), command("proximo", "eval", f"{path}@best")
        print(f"Another checkpoint had the best evaluation in training (step {steps}):  {again}")
    return 0


def _evaluated(run_dir: Path, which: Any, options: argparse.Namespace) -> Any:
    """Evaluate one run. Warnings go to standard error."""
    from proximo.evaluation.evaluate import Mode, evaluate_policy

    modes: list[Mode] = ["greedy"] if options.greedy else ["sampled"] if options.stochastic else ["greedy", "sampled"]
    names = "seed", "runs_dir", "levels", "env_settings", "num_envs", "env"
    with quiet_stdout(options.json):
        arguments: dict[str, Any] = {name: getattr(options, name) for name in names}
        evaluation = evaluate_policy(f"{run_dir}@{which}", options.episodes, modes, **arguments)
    print_warnings(evaluation.warnings)
    return evaluation


def as_json(evaluations: dict[str, Any], best: dict[str, int | None]) -> dict[str, Any]:
    """The statistics of a run, and what was played.

    The first level has the statistics of the greedy policy, or of the sampled one if only that was requested. Those of each policy
    are under its name. For a group, they are means over its seeds, and each seed is under ``seeds``.
    """
    rows = {
        name: _figures({mode: e.summary() for mode, e in one.episodes.items()}) | one.played | {"best_step": best[name]}
        for name, one in evaluations.items()
    }
    if len(rows) == 1:
        [(name, row)] = rows.items()
        return {**row, "run": name}
    first = next(iter(evaluations.values()))
    played = {name: value for name, value in first.played.items() if name != "step"}
    return {**_figures({mode: _over_seeds(evaluations, mode) for mode in first.episodes}), **played, "seeds": rows}


def _figures(summaries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The statistics of the first policy, its name, and the statistics of all policies."""
    mode = next(iter(summaries))
    return {**summaries[mode], "policy": mode, **summaries}


def _over_seeds(evaluations: dict[str, Any], mode: str) -> dict[str, Any]:
    """Means over the seeds of a group.

    ``ci95`` resamples seeds, so it applies to new trainings. ``ci95_episodes`` resamples the episodes of each policy, so it applies
    only to these policies.
    """
    import numpy as np

    from proximo.evaluation.episodes import Episodes, stratified_interval

    parts = [evaluation.episodes[mode] for evaluation in evaluations.values()]
    rows = [episodes.summary() for episodes in parts]
    rates = [row["success_rate"] for row in rows]
    success = np.array([rate or 0.0 for rate in rates]) if any(rate is not None for rate in rates) else None
    seeds = Episodes(np.array([row["return_mean"] for row in rows]), np.array([row["length_mean"] for row in rows]), success, 0)
    return {
        **seeds.summary(),
        "episodes": sum(row["episodes"] for row in rows),
        "ci95_episodes": stratified_interval([episodes.episode_return.astype(np.float64) for episodes in parts]),
    }


def _write_lines(path: Path, evaluations: dict[str, Any]) -> None:
    from proximo.serialization import jsonable

    lines = [
        json.dumps(jsonable({"run": name, **evaluation.played, "policy": mode, **row}), allow_nan=False)
        for name, evaluation in evaluations.items()
        for mode, episodes in evaluation.episodes.items()
        for row in episodes.rows()
    ]
    try:
        path.write_text("\n".join(lines) + "\n")
    except OSError as error:
        raise UsageError(f"Cannot write --episodes-file {path} ({error.strerror}).") from error


def _table(name: str, evaluation: Any) -> str:
    """A line about what was played, and a row for each policy."""
    rows, played = {mode: episodes.summary() for mode, episodes in evaluation.episodes.items()}, evaluation.played
    episodes = amount(next(iter(rows.values()))["episodes"], "episode") + (" each" if len(rows) > 1 else "")
    parts = [played["env"], *(f"{key}={value}" for key, value in played["env_settings"].items())]
    parts += [f"levels {played['levels']}"] if played["levels"] else []
    parts += [f"environment seed {played['seed']}", episodes]
    return "\n".join([f"{name} at step {played['step']:,}: {', '.join(parts)}", *_summary_table(rows, "95 % of the mean")])


def _group_table(path: Path, evaluations: dict[str, Any]) -> str:
    rows = {mode: _over_seeds(evaluations, mode) for mode in next(iter(evaluations.values())).episodes}
    within = "; ".join(f"{mode} {' … '.join(map(number, row['ci95_episodes']))}" for mode, row in rows.items())
    lines = [f"{path}: means over {len(evaluations)} seeds", *_summary_table(rows, "95 % over seeds")]
    return "\n".join([*lines, f"  95 % of the mean of these policies, by their episodes: {within}"])


def _summary_table(rows: dict[str, dict[str, Any]], interval: str) -> list[str]:
    """A table with a header and a row for each policy."""
    lines = [["", "return ± sd", interval, "interquartile mean", "length", "success"]]
    for mode, s in rows.items():
        success = "–" if s["success_rate"] is None else f"{s['success_rate']:.1%}"
        spread, within = f"{number(s['return_mean'])} ± {number(s['return_std'])}", " … ".join(map(number, s["ci95"]))
        lines.append([mode, spread, within, number(s["return_iqm"]), f"{s['length_mean']:,.1f}", success])
    return [f"  {line}" for line in aligned(lines)]
