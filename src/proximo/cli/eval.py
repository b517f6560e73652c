"""Evaluate a trained policy on whole episodes, with its most probable actions and with sampled actions.

proximo eval RUN [--episodes N] [--greedy | --stochastic] [...]
"""

from pathlib import Path
from typing import Any

from proximo.cli import EPISODE_FLAGS, POLICY_HELP, Options, Parser, UsageError, aligned, print_json, print_warnings, quiet_stdout
from proximo.errors import command, instead_of_os_errors
from proximo.tracking.progress import amount, number

Rows = dict[str, dict[str, Any]]
"""The statistics of each policy, greedy and sampled."""
RESULTS = ("win_rate", "draw_rate", "loss_rate")
"""Statistics of games."""


def make_parser() -> Parser:
    parser = Parser("eval", __doc__)
    parser.add("run", POLICY_HELP, "RUN")
    parser.add("--episodes", "episodes of each policy, greedy and sampled (default 100)", "N", default=100)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--greedy", action="store_true", help="use only the most probable actions")
    mode.add_argument("--stochastic", action="store_true", help="use only sampled actions")
    parser.add_shared("--env", *EPISODE_FLAGS)
    parser.add("--against", "opponent in a game: random, or a run, such as RUN@STEP (default random)", "RUN")
    parser.add("--num-envs", "environments stepped together (default 0: chosen for speed)", "N", default=0)
    parser.add("--episodes-file", "write one line of JSON for each episode to FILE", "FILE")
    parser.add_shared("--runs-dir", "--json")
    return parser


def run(options: Options) -> int:
    file = options.episodes_file
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise UsageError(f"Cannot write --episodes-file {file}: expected a file in a folder that exists.")

    from proximo.evaluation.evaluate import Mode, evaluate_policy
    from proximo.storage import checkpoint, run_lookup, zoo
    from proximo.storage.named_folders import seed_run_dirs

    path, which = run_lookup.find_run(options.run, options.runs_dir)
    modes: list[Mode] = ["greedy"] if options.greedy else ["sampled"] if options.stochastic else ["greedy", "sampled"]
    arguments = {
        name: getattr(options, name) for name in ("seed", "runs_dir", "levels", "env_settings", "num_envs", "env", "against")
    }
    seed_runs, evaluations = seed_run_dirs(path), {}
    for run_dir in seed_runs or [path]:
        with quiet_stdout(options.json):
            evaluation = evaluate_policy(f"{run_dir}@{which}", options.episodes, modes, **arguments)
        print_warnings(evaluation.warnings)
        evaluations[zoo.label(run_dir)] = evaluation
    if file is not None:
        _write_lines(file, evaluations)
    best = {name: checkpoint.best_step(Path(name)) for name in evaluations}
    summaries = {name: {mode: x.summary() for mode, x in one.episodes.items()} for name, one in evaluations.items()}
    group = _over_seeds(evaluations, summaries) if seed_runs else {}
    if options.json:
        runs = {name: _entries(summaries[name]) | one.played | {"best_step": best[name]} for name, one in evaluations.items()}
        name, row = next(iter(runs.items()))
        shared = {key: row[key] for key in ("env", "env_settings", "levels", "against", "seed") if key in row}
        print_json({**row, "run": name} if len(runs) == 1 else {**_entries(group), **shared, "seeds": runs})
        return 0
    for name, rows in summaries.items():
        print("\n".join([_heading(name, evaluations[name].played, rows), *_table(rows, "95 % interval of the mean")]))
    if group:
        within = "; ".join(f"{mode} {' … '.join(map(number, row['ci95_episodes']))}" for mode, row in group.items())
        print("\n".join([f"{path}: means over {len(evaluations)} seeds", *_table(group, "95 % interval over seeds")]))
        print(f"  95 % interval of the mean return of these policies (resampled episodes): {within}")
    other_best = [name for name, one in evaluations.items() if best[name] not in (None, one.played["step"])]
    if other_best and "@" not in options.run:
        steps, again = ", ".join(f"{best[name]:,}" for name in other_best), command("proximo", "eval", f"{path}@best")
        print(f"Another checkpoint had the best evaluation in training (step {steps}):  {again}")
    return 0


def _entries(rows: Rows) -> dict[str, Any]:
    """The statistics of the first policy, and of each policy under its name."""
    mode = next(iter(rows))
    return {**rows[mode], "policy": mode, **rows}


def _over_seeds(evaluations: dict[str, Any], summaries: dict[str, Rows]) -> Rows:
    """For each policy, means over the seeds of a group. ``ci95`` resamples seeds, so it applies to new trainings.
    ``ci95_episodes`` resamples the episodes of each policy, so it applies only to these policies."""
    import numpy as np

    from proximo.evaluation.episodes import Episodes, stratified_interval

    found = {}
    for mode in next(iter(summaries.values())):
        rows = [row[mode] for row in summaries.values()]
        returns, lengths, rates = ([row[name] for row in rows] for name in ("return_mean", "length_mean", "success_rate"))
        success = np.array([rate or 0.0 for rate in rates]) if any(rate is not None for rate in rates) else None
        played = [one.episodes[mode].means_of_agents for one in evaluations.values()]
        others = {name: float(np.mean([row[name] for row in rows])) for name in ("team_return_mean", *RESULTS) if name in rows[0]}
        found[mode] = {
            **Episodes(np.array(returns), np.array(lengths), success, 0).summary(),
            **others,
            "episodes": sum(row["episodes"] for row in rows),
            "ci95_episodes": stratified_interval(played),
        }
    return found


def _write_lines(path: Path, evaluations: dict[str, Any]) -> None:
    from proximo.serialization import json_lines

    rows = [
        {"run": name, **evaluation.played, "policy": mode, **row}
        for name, evaluation in evaluations.items()
        for mode, episodes in evaluation.episodes.items()
        for row in episodes.rows()
    ]
    with instead_of_os_errors(UsageError, f"Cannot write --episodes-file {path}", "choose another file."):
        path.write_bytes(json_lines(rows))


def _heading(name: str, played: dict[str, Any], rows: Rows) -> str:
    """What was played."""
    parts = [played["env"], *(f"{key}={value}" for key, value in played["env_settings"].items())]
    parts += [f"levels {played['levels']}"] if played["levels"] else []
    parts += [f"against {played['against']}"] if "against" in played else []
    episodes = amount(next(iter(rows.values()))["episodes"], "episode")
    parts += [f"environment seed {played['seed']}", f"{episodes}{' each' if len(rows) > 1 else ''}"]
    return f"{name} at step {played['step']:,}: {', '.join(parts)}"


def _table(rows: Rows, interval: str) -> list[str]:
    """A table with a header and a row for each policy."""
    first = next(iter(rows.values()))
    teams = ["return of all agents"] if "team_return_mean" in first else []
    results = [name for name in RESULTS if name in first]
    last = [name.removesuffix("_rate") for name in results] or ["success"]
    lines = [["", "return ± sd", interval, "interquartile mean", *teams, "length", *last]]
    for mode, s in rows.items():
        rates = ["–" if s[name] is None else f"{s[name]:.1%}" for name in results or ["success_rate"]]
        spread, within = f"{number(s['return_mean'])} ± {number(s['return_std'])}", " … ".join(map(number, s["ci95"]))
        team = [number(s["team_return_mean"])] if teams else []
        lines.append([mode, spread, within, number(s["return_iqm"]), *team, f"{s['length_mean']:,.1f}", *rates])
    return [f"  {line}" for line in aligned(lines)]
