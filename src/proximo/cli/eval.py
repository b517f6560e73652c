"""``proximo eval``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from proximo.cli import Parser, UsageError, quiet_stdout
from proximo.errors import command, printable

FIGURES = ("episodes", "mean_return", "std_return", "iqm_return", "ci95", "mean_length", "success_rate")


def make_parser() -> Parser:
    """The flags of the verb."""
    parser = Parser(
        prog="proximo eval",
        description="Play whole episodes with a trained policy: by its most probable actions, and by sampled ones beside them.",
        usage="proximo eval RUN [--episodes N] [--greedy | --stochastic] [...]",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="a path, a name, or last; with @best, @last or @STEP behind it")
    parser.add_argument("--episodes", type=int, default=100, metavar="N", help="how many, of each kind (default 100)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--greedy", action="store_true", help="only the most probable actions")
    how.add_argument("--stochastic", action="store_true", help="only sampled actions")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the environments; never training's (default 0)")
    parser.add_argument("--levels", metavar="FROM:TO", help="levels of this range, as 1000:1050, instead of those trained on")
    parser.add_argument(
        "--env-settings", default="", metavar="KEY=VALUE,...", help="parameters of the environment beside those trained with"
    )
    parser.add_argument(
        "--num-envs", type=int, default=0, metavar="N", help="environments at a time (default 0: as many as go well)"
    )
    parser.add_argument("--episodes-file", type=Path, metavar="FILE", help="write a line of JSON for each episode")
    parser.add_argument("--runs-dir", default="runs", metavar="FOLDER", help="folder of all runs (default runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(arguments: list[str]) -> int:
    """Evaluate a run, or every seed of a group."""
    options = make_parser().parse_args(arguments)
    if options.episodes_file is not None and (options.episodes_file.is_dir() or not options.episodes_file.parent.is_dir()):
        raise UsageError(f"Cannot write --episodes-file {options.episodes_file}: expected a file in a folder that exists.")

    from proximo.run import directory, retention
    from proximo.run.files import plain

    path, which = directory.resolve(options.run, Path(options.runs_dir))
    members = directory.members(path)
    judged = {str(run_dir): _judged(run_dir, which, options) for run_dir in members or [path]}
    if options.episodes_file is not None:
        _write_lines(options.episodes_file, judged)
    best = {name: retention.best_step(Path(name)) for name in judged}
    if options.json:
        print(json.dumps(plain(as_json(judged, best)), allow_nan=False))
        return 0
    for name, judgement in judged.items():
        print(_table(name, judgement))
    if members:
        print(_group_table(path, judged))
    behind = [name for name, judgement in judged.items() if best[name] not in (None, judgement.played["step"])]
    if behind and "@" not in options.run:
        steps = ", ".join(f"{best[name]:,}" for name in behind)
        print(
            f"Another checkpoint had the best evaluation in training (step {steps}):  {command('proximo', 'eval', f'{path}@best')}"
        )
    return 0


def _judged(run_dir: Path, which: Any, options: argparse.Namespace) -> Any:
    """The judgement of one run; what there is to say of it goes to standard error."""
    from proximo.coercion import coerce
    from proximo.config import LEAVES
    from proximo.run import load_policy
    from proximo.run.judgement import How, judge, told_unfinished

    hows: list[How] = ["greedy"] if options.greedy else ["sampled"] if options.stochastic else ["greedy", "sampled"]
    with quiet_stdout(options.json):
        policy = load_policy(f"{run_dir}@{which}", options.runs_dir)
        judgement = judge(
            policy,
            options.episodes,
            hows,
            seed=options.seed,
            levels=options.levels,
            env_settings=coerce(LEAVES["env_settings"], options.env_settings),
            num_envs=options.num_envs,
        )
    for warning in dict.fromkeys((*policy.warnings, *(w for e in judgement.episodes.values() for w in e.warnings))):
        print(printable(f"warning: {warning}"), file=sys.stderr)
    for sentence in told_unfinished(judgement):
        print(printable(f"warning: {sentence}"), file=sys.stderr)
    return judgement


def as_json(judged: dict[str, Any], best: dict[str, int | None]) -> dict[str, Any]:
    """A run's figures, by the greedy policy unless only the sampled one was asked for, those of each under its own name, and what
    was played; for a group the means over its seeds, with ``seeds`` beside them."""
    rows = {
        name: {
            **_figures({how: e.summary() for how, e in judgement.episodes.items()}),
            **judgement.played,
            "best_step": best[name],
        }
        for name, judgement in judged.items()
    }
    if len(rows) == 1:
        [(name, row)] = rows.items()
        return {**row, "run": name}
    first = next(iter(judged.values()))
    played = {name: value for name, value in first.played.items() if name != "step"}
    return {**_figures({how: _over_seeds(judged, how) for how in first.episodes}), **played, "seeds": rows}


def _figures(summaries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The figures of the first policy, its name, and those of all."""
    how = next(iter(summaries))
    return {**summaries[how], "policy": how, **summaries}


def _over_seeds(judged: dict[str, Any], how: str) -> dict[str, Any]:
    """Means over the seeds of a group: ``ci95`` over seeds, so of another training; ``ci95_episodes`` of these policies, each
    one's episodes resampled by themselves."""
    import numpy as np

    from proximo.run.episodes import bootstrap_interval, interquartile_mean, stratified_interval

    rows = [judgement.episodes[how].summary() for judgement in judged.values()]
    returns = np.array([row["mean_return"] for row in rows])
    reported = any(row["success_rate"] is not None for row in rows)
    return {
        "episodes": sum(row["episodes"] for row in rows),
        "mean_return": float(returns.mean()),
        "std_return": float(returns.std()),
        "iqm_return": interquartile_mean(returns),
        "ci95": bootstrap_interval(returns),
        "mean_length": float(np.mean([row["mean_length"] for row in rows])),
        "success_rate": float(np.mean([row["success_rate"] or 0.0 for row in rows])) if reported else None,
        "ci95_episodes": stratified_interval([j.episodes[how].episode_return.astype(np.float64) for j in judged.values()]),
    }


def _write_lines(path: Path, judged: dict[str, Any]) -> None:
    from proximo.run.files import plain, write_atomic

    lines = [
        json.dumps(plain({"run": name, **judgement.played, "policy": how, **row}), allow_nan=False)
        for name, judgement in judged.items()
        for how, episodes in judgement.episodes.items()
        for row in episodes.rows()
    ]
    try:
        write_atomic(path, "\n".join(lines) + "\n")
    except OSError as error:
        raise UsageError(f"Cannot write --episodes-file {path} ({error.strerror}).") from error


def _table(name: str, judgement: Any) -> str:
    """What was played, and a row for each policy."""
    rows = {how: episodes.summary() for how, episodes in judgement.episodes.items()}
    played = judgement.played
    parts = [played["env"], *(f"{key}={value}" for key, value in played["env_settings"].items())]
    parts += [f"levels {played['levels']}"] if played["levels"] else []
    parts += [f"seed {played['seed']}", f"{next(iter(rows.values()))['episodes']} episodes" + (" each" if len(rows) > 1 else "")]
    return "\n".join([f"{name} at step {played['step']:,}: {', '.join(parts)}", *_aligned(rows, "95 % of the mean")])


def _group_table(path: Path, judged: dict[str, Any]) -> str:
    rows = {how: _over_seeds(judged, how) for how in next(iter(judged.values())).episodes}
    within = "; ".join(
        f"{how} {low:,.2f} … {high:,.2f}" for how, (low, high) in ((h, r["ci95_episodes"]) for h, r in rows.items())
    )
    lines = [f"{path}: means over {len(judged)} seeds", *_aligned(rows, "95 % over seeds")]
    return "\n".join([*lines, f"  95 % of the mean of these policies, by their episodes: {within}"])


def _aligned(rows: dict[str, dict[str, Any]], interval: str) -> list[str]:
    """A table: a line of names, and one for each policy."""
    lines = [["", "return ± sd", interval, "interquartile mean", "length", "success"]]
    for how, s in rows.items():
        low, high = s["ci95"]
        success = "–" if s["success_rate"] is None else f"{s['success_rate']:.1%}"
        middle = f"{s['iqm_return']:,.2f}"
        spread = f"{s['mean_return']:,.2f} ± {s['std_return']:,.2f}"
        lines.append([how, spread, f"{low:,.2f} … {high:,.2f}", middle, f"{s['mean_length']:,.1f}", success])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
