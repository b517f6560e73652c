"""``proximo eval``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from proximo.cli import Parser, quiet_stdout


def run(arguments: list[str]) -> int:
    """Evaluate a run, or every seed of a group."""
    parser = Parser(prog="proximo eval", description="Play whole episodes with a trained policy.", allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", help="a path, a name, or last; with @best, @last or @STEP behind it")
    parser.add_argument("--episodes", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--stochastic", action="store_true", help="sample actions; the default takes the most probable one")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the environments; never those of training or selection (default 0)"
    )
    parser.add_argument("--levels", help="play levels of this range, as 1000:1050, instead of those trained on")
    parser.add_argument(
        "--env-settings", default="", help="parameters of the environment beside those trained with, as key=value,key=value"
    )
    parser.add_argument("--runs-dir", default="runs", help="folder of all runs (default runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    from proximo.coercion import coerce
    from proximo.config import LEAVES
    from proximo.run import directory, evaluate, load_policy
    from proximo.run.files import plain

    path, which = directory.resolve(options.run, Path(options.runs_dir))
    results: dict[str, Any] = {}
    for run_dir in directory.members(path) or [path]:
        with quiet_stdout(options.json):
            policy = load_policy(f"{run_dir}@{which}", options.runs_dir)
            episodes = evaluate(
                policy,
                options.episodes,
                stochastic=options.stochastic,
                seed=options.seed,
                levels=options.levels,
                env_settings=coerce(LEAVES["env_settings"], options.env_settings),
            )
        for warning in (*policy.warnings, *episodes.warnings):
            print(f"warning: {warning}", file=sys.stderr)
        if episodes.unfinished:
            print(f"warning: {episodes.unfinished} episodes did not end and count as they stood.", file=sys.stderr)
        results[str(run_dir)] = {"step": policy.step, **episodes.summary()}
    if options.json:
        print(json.dumps(plain(as_json(results)), allow_nan=False))
        return 0
    for name, summary in results.items():
        print(_sentence(name, summary, "sampled" if options.stochastic else "greedy"))
    return 0


def as_json(results: dict[str, Any]) -> dict[str, Any]:
    """A run's summary; for a group the means over its seeds, with ``seeds`` beside them."""
    summaries = {name: {k: v for k, v in s.items() if k != "step"} for name, s in results.items()}
    rows = list(summaries.values())
    if len(rows) == 1:
        return rows[0]
    import numpy as np

    from proximo.run.episodes import bootstrap_interval, interquartile_mean

    returns = np.array([row["mean_return"] for row in rows])
    successes = [row["success_rate"] for row in rows if row["success_rate"] is not None]
    return {
        "episodes": sum(row["episodes"] for row in rows),
        "mean_return": float(returns.mean()),
        "std_return": float(returns.std()),
        "iqm_return": interquartile_mean(returns),
        "ci95": bootstrap_interval(returns),
        "mean_length": float(np.mean([row["mean_length"] for row in rows])),
        "success_rate": float(np.mean(successes)) if successes else None,
        "seeds": summaries,
    }


def _sentence(name: str, s: dict[str, Any], how: str) -> str:
    low, high = s["ci95"]
    success = "" if s["success_rate"] is None else f", success {s['success_rate']:.1%}"
    return (
        f"{name} at step {s['step']:,}: return {s['mean_return']:.2f} ± {s['std_return']:.2f} over {s['episodes']} {how} episodes "
        f"(95 % interval of the mean {low:.2f} … {high:.2f}; interquartile mean {s['iqm_return']:.2f}), length {s['mean_length']:.1f}{success}"
    )
