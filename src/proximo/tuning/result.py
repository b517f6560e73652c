"""The result of a study and its files: a table of its trials, and a preset for ``train --config``."""

import csv
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from proximo.config import to_mapping
from proximo.errors import command
from proximo.serialization import JsonObject, csv_cell, dump_yaml
from proximo.storage.atomic_files import write_atomic
from proximo.storage.system_info import versions
from proximo.tuning.plan import FINAL, TEST, TRIAL, Record, StudyPlan, best_of

MEANS = {TRIAL: "score", FINAL: "final_score", TEST: "test_score"}
SCORES = {TRIAL: "seed_scores", FINAL: "final_scores", TEST: "test_scores"}
KEPT_OF_RUN = ("matmul_precision", "updates_per_call", "eval_episodes", "eval_max_steps")
"""Settings of the group ``run`` that a preset contains, because they change results."""


@dataclass
class TuneResult:
    """The result of a study."""

    folder: Path
    """The folder of the study."""
    plan: StudyPlan
    """What was searched, and how."""
    trials: list[Record]
    """All trials that are over."""
    interrupted: int | None = None
    """Number of the signal that ended the study early; None if none did."""

    @property
    def best(self) -> Record | None:
        """The best trial, with its ``settings`` and ``score``; None if no trial was trained to its end."""
        return best_of(self.trials)

    @property
    def preset(self) -> Path | None:
        """The preset of the best trial; None if there is none."""
        return None if self.best is None else self.folder / "preset.yaml"

    @property
    def counts(self) -> dict[str, int]:
        """The number of trials that are done, pruned and failed."""
        return {state: sum(t.state == state for t in self.trials) for state in ("done", "pruned", "failed")}

    def __repr__(self) -> str:
        best = "no score" if self.best is None else f"best score {self.best.score:.4g} by {self.best.name}"
        return f"TuneResult({str(self.folder)!r}: {len(self.trials)} trials, {best})"

    def summary(self) -> JsonObject:
        """Summarize the result for JSON.

        Returns:
            What ``proximo tune --json`` prints.
        """
        return {
            "study": str(self.folder),
            "env": self.plan.base.env.id,
            "trials": self.counts,
            "best": self.best and _figures(self.best),
            "base": _figures(self.trials[0]) if self.trials else None,
            "preset": self.preset and str(self.preset),
            "command": self.preset and command("proximo", "train", "--config", self.preset),
        }

    def write(self) -> None:
        """Write ``trials.csv``, and the best trial as ``preset.yaml``, with all settings, so that no later default changes them."""
        out = io.StringIO()
        writer, names = csv.writer(out), list(self.plan.space)
        writer.writerow(["trial", "state", *MEANS.values(), *names, "seconds", *SCORES.values(), "evaluations", "reason"])
        for t in self.trials:
            settings = [csv_cell(t.settings.get(name, "")) for name in names]
            lists = [*(t.scores.get(kind, []) for kind in SCORES), t.evaluations]
            texts = [" ".join(f"{score:g}" for score in scores) for scores in lists]
            means = [t.mean(kind) for kind in MEANS]
            writer.writerow([t.number, t.state, *means, *settings, round(t.seconds, 2), *texts, csv_cell(t.reason)])
        write_atomic(self.folder / "trials.csv", out.getvalue())
        if self.best is not None and self.preset is not None:
            groups = to_mapping(self.plan.config(self.best))
            groups["run"] = {name: groups["run"][name] for name in KEPT_OF_RUN}
            header = f"# Found by `proximo tune`. Train with it: {command('proximo', 'train', '--config', self.preset)}\n"
            write_atomic(self.preset, header + dump_yaml({"provenance": self._provenance(self.best), **groups}))

    def _provenance(self, best: Record) -> JsonObject:
        plan, base = self.plan, self.trials[0]
        found: JsonObject = {
            "study": str(self.folder),
            "trial": best.number,
            "trials": self.counts,
            "searched": list(plan.space),
        }
        for kind, name in MEANS.items():
            if kind in best.scores:
                seeds = plan.seeds_of(kind)
                found |= {name.replace("score", "seeds"): f"{seeds[0]}-{seeds[-1]}", name: best.mean(kind)}
            if kind in base.scores:
                found[f"base_{name}"] = base.mean(kind)
        scored_by = f"mean over the seeds of {plan.base.run.eval_episodes} greedy episodes with the final policy"
        return found | {"scored_by": scored_by, "date": datetime.now(UTC).date().isoformat(), "versions": versions()}


def _figures(trial: Record) -> JsonObject:
    scores = {name: trial.mean(kind) for kind, name in MEANS.items()}
    by_seed = {name: trial.scores.get(kind, []) for kind, name in SCORES.items()}
    return {"trial": trial.number, **scores, **by_seed, "settings": trial.settings}
