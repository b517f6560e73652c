"""``proximo.tune``: the search from Python, and its continuation. Optuna is imported when a search begins."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from proximo.config import Config
from proximo.config.schema import RUN_DIRECTORY
from proximo.config.typed_settings import AgentSettings
from proximo.config.validation import check_name
from proximo.errors import ConfigError, require
from proximo.jax_setup import prepare_jax
from proximo.processes.peers import current
from proximo.settings import lists_settings
from proximo.storage import run_directory
from proximo.storage.atomic_files import write_atomic
from proximo.storage.named_folders import find_folder
from proximo.storage.run_directory import locked
from proximo.tracking.progress import StudyProgress, showing_progress
from proximo.tracking.reporter import Reporter
from proximo.training.api import settings_of

if TYPE_CHECKING:
    from proximo.tuning.study import TuneResult

WITHOUT_EFFECT = (*RUN_DIRECTORY, "eval_every")


@lists_settings(AgentSettings, without=WITHOUT_EFFECT)
def tune(
    env: str = "",
    *,
    config: Config | None = None,
    preset: bool = True,
    space: str | Path | None = None,
    trials: int = 64,
    seconds: float | None = None,
    seeds: int = 2,
    together: int | None = None,
    evaluations: int = 4,
    pruner: str = "median",
    finalists: int = 3,
    name: str = "",
    tune_dir: str | Path = "tune",
    reporter: Reporter | None = None,
    progress: bool | None = None,
    **settings: Unpack[AgentSettings],
) -> TuneResult:
    """Search for good settings and save them as a preset, as ``proximo tune`` does. This needs the extra ``tune``.

        result = proximo.tune("gymnax:Acrobot-v1", seconds=600)
        proximo.train(config=proximo.make_config(file=result.preset))

    Args:
        env: id of an environment.
        config: all settings to start from, as ``proximo.make_config`` returns them, instead of the preset of ``env`` or the defaults for its kind.
        preset: whether to start from the preset of ``env``, or, without one, from the defaults for its kind of environment.
        space: YAML file with the search space; None: the default space.
        trials: number of trials, including the trial of the initial settings.
        seconds: time limit in seconds, with the final round; None: no limit.
        seeds: seeds of each trial; its score is their mean.
        together: trials in one compiled program; None: 8, and 1 for Gymnasium environments.
        evaluations: evaluations of a trial; each but the last can end it early.
        pruner: rule that ends trials early: ``median``, ``halving`` or ``none``.
        finalists: best trials that are trained again on other seeds.
        name: name of the study; by default date and time.
        tune_dir: folder of all studies. The study is in ``tune_dir/<env>/<name>/``.
        reporter: receives the progress and the warnings; by default warnings are Python warnings.
        progress: without a reporter, whether to print a line for each finished trial; None: on a terminal and in a notebook.
        settings: settings that stay fixed in all trials.

    Returns:
        The result.

    Raises:
        ConfigError: a setting, a number or the space is invalid.
        EnvError: the extra is not installed, or the environment cannot be made.
        RunDirectoryError: the folder of the study exists already, or cannot be written.
        TrainingError: every trial failed.
    """
    require("optuna", "proximo.tune", "tune")
    current().require_one("tune")
    from proximo.tuning.plan import make_plan, open_journal
    from proximo.tuning.study import deadline_of, run_study

    if ignored := [name for name in settings if name in WITHOUT_EFFECT]:
        raise ConfigError(
            f"{', '.join(ignored)}: no effect on a search, because trials write no run directories, and `evaluations` says how often they "
            "are evaluated. Leave it out."
        )
    if not isinstance(space, str | Path | None):
        raise ConfigError(f"space = {space!r}: expected the path of a YAML file.")
    tune_dir = Path(tune_dir).absolute()  # now, because an environment may change the working folder
    deadline = deadline_of(seconds)
    check_name(name)
    search = {"trials": trials, "seeds": seeds, "evaluations": evaluations, "pruner": pruner, "finalists": finalists}
    with showing_progress(reporter, progress, Reporter(), StudyProgress) as shown:
        plan = make_plan(settings_of(env, config, preset, settings), settings, space, shown, together, **search)

        def fill(folder: Path) -> None:
            write_atomic(folder / "command.txt", shlex.join(sys.argv) + "\n")
            plan.store(open_journal(folder))

        folder = run_directory.create(tune_dir, plan.base.env.id, name, fill, "--tune-dir")
        return run_study(folder, plan, shown, deadline)


def resume(
    study: str | Path,
    *,
    trials: int | None = None,
    tune_dir: str | Path = "tune",
    seconds: float | None = None,
    reporter: Reporter | None = None,
) -> TuneResult:
    """Continue a study.

    Args:
        study: a path, the name of a study, or ``last``.
        trials: new number of trials, including the finished ones; None: as before.
        tune_dir: folder of all studies.
        seconds: time limit of this session in seconds; None: no limit.
        reporter: receives the progress and the warnings; by default warnings are Python warnings.

    Returns:
        The result, with the earlier trials.

    Raises:
        CheckpointError: the study is unknown or damaged.
        ConfigError: ``trials`` or ``seconds`` is invalid, or the settings do not fit the environment.
        RunDirectoryError: another process runs the study.
        TrainingError: every trial failed.
    """
    require("optuna", "proximo.tuning.api.resume", "tune")
    from proximo.tuning.plan import STUDIES, open_journal, read_plan
    from proximo.tuning.study import deadline_of, run_study

    deadline = deadline_of(seconds)
    folder = find_folder(str(study), Path(tune_dir), STUDIES).absolute()
    with locked(folder):
        plan = read_plan(open_journal(folder), folder)
    plan = dataclasses.replace(plan, trials=plan.trials if trials is None else trials)
    prepare_jax(for_seeds=True)
    current().require_one("tune")
    return run_study(folder, plan, reporter or Reporter(), deadline)
