"""The files of a study: the table of its trials, and the preset that ``train --config`` takes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proximo.config import LEAVES, text_of, to_mapping
from proximo.errors import command
from proximo.serialization import dump_yaml
from proximo.storage.atomic_files import write_atomic
from proximo.storage.system_info import system_info
from proximo.tune.plan import StudyPlan
from proximo.tune.record import Record, best_of, write_csv
from proximo.tune.space import setting_values

PRESET, TABLE = "preset.yaml", "trials.csv"
_VERSIONS = ("proximo", "jax", "jaxlib", "optax", "equinox", "gymnasium", "gymnax")
_KEPT_OF_RUN = ("matmul_precision", "updates_per_call", "eval_episodes", "eval_max_steps")
"""Settings of the group ``run`` that a preset contains, because they change results. Seeds, names and folders are left to the user."""


def write_tables(folder: Path, plan: StudyPlan, trials: list[Record]) -> None:
    """Write ``trials.csv``, and the best trial so far as ``preset.yaml``."""
    write_csv(folder / TABLE, trials, plan.space.names)
    best = best_of(trials)
    if best is not None:
        write_preset(folder / PRESET, folder, plan, trials, best)


def write_preset(path: Path, folder: Path, plan: StudyPlan, trials: list[Record], best: Record) -> None:
    """Write every setting of environment, learner and network, so that no later default and no preset of the environment changes
    them."""
    groups = to_mapping(plan.config(best.number, best.settings))
    groups["run"] = {name: groups["run"][name] for name in _KEPT_OF_RUN}
    content = {"provenance": _provenance(folder, plan, trials, best), **groups}
    header = f"# Found by `proximo tune`. Train with it: {command('proximo', 'train', '--config', path)}\n"
    write_atomic(path, header + dump_yaml(content))


def _provenance(folder: Path, plan: StudyPlan, trials: list[Record], best: Record) -> dict[str, Any]:
    base, versions = trials[0], system_info()["versions"]
    first, seeds = plan.trial_seeds[0], plan.trial_seeds[-1]
    return {
        "study": str(folder),
        "trial": best.number,
        "trials": {state: sum(t.state == state for t in trials) for state in ("done", "pruned", "failed")},
        "searched": list(plan.space.names),
        "seeds": f"{first}-{seeds}",
        "score": best.score,
        "base_score": base.score,
        **(
            {"final_seeds": f"{plan.final_seeds[0]}-{plan.final_seeds[-1]}", "final_score": best.final_score}
            if best.final
            else {}
        ),
        **(
            {"test_seeds": f"{plan.test_seeds[0]}-{plan.test_seeds[-1]}", "test_score": best.test_score}
            if best.test is not None
            else {}
        ),
        **({"base_final_score": base.final_score} if base.final else {}),
        "scored_by": f"mean over the seeds of {plan.base.run.eval_episodes} greedy episodes with the final policy",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: versions[name] for name in _VERSIONS if versions.get(name, "not installed") != "not installed"},
    }


def summary(folder: Path, plan: StudyPlan, trials: list[Record]) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    best, base = best_of(trials), trials[0] if trials else None
    counts = {state: sum(t.state == state for t in trials) for state in ("done", "pruned", "failed", "running")}
    return {
        "study": str(folder),
        "env": plan.base.env.id,
        "trials": counts,
        "best": None if best is None else _figures(best),
        "base": None if base is None else _figures(base),
        "preset": str(folder / PRESET) if best is not None else None,
        "command": command("proximo", "train", "--config", folder / PRESET) if best is not None else None,
    }


def _figures(trial: Record) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "score": trial.score,
        "final_score": trial.final_score,
        "test_score": trial.test_score,
        "seed_scores": trial.seed_scores,
        "final_scores": trial.final or [],
        "test_scores": trial.test or [],
        "settings": trial.settings,
    }


def changes(plan: StudyPlan, trial: Record) -> list[tuple[str, str, str]]:
    """(name, value in the base, value in the trial) of the searched settings; those that differ come first."""
    configs = (plan.base, plan.config(trial.number, trial.settings))
    before, after = (setting_values(config, plan.space.names) for config in configs)
    order = sorted(plan.space.names, key=lambda name: (before[name] == after[name], LEAVES[name].group))
    return [(name, text_of(before[name]), text_of(after[name])) for name in order]
