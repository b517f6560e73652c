"""``proximo.tune``: the search from Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from proximo.config import Config
from proximo.config.listing import lists_settings
from proximo.config.schema import RUN_DIRECTORY
from proximo.config.typed_settings import AgentSettings
from proximo.errors import ConfigError
from proximo.training.api import settings_of
from proximo.tuning import check_libraries

if TYPE_CHECKING:
    from proximo.tuning.api import TuneResult
    from proximo.tuning.progress import Reporter


WITHOUT_EFFECT = (*RUN_DIRECTORY, "eval_every")
"""Settings that no trial has."""


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
        trials: number of trials, including that of the initial settings.
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
    check_libraries("proximo.tune")
    from proximo.tuning.api import run_study
    from proximo.tuning.planning import make_plan
    from proximo.tuning.progress import reporter_for

    if ignored := [name for name in settings if name in WITHOUT_EFFECT]:
        raise ConfigError(
            f"{', '.join(ignored)}: no effect on a search, because trials write no run directories, and `evaluations` says how often they "
            "are evaluated. Leave it out."
        )
    if not isinstance(space, str | Path | None):
        raise ConfigError(f"space = {space!r}: expected the path of a YAML file.")
    plan = make_plan(
        settings_of(env, config, preset, settings),
        settings,
        None if space is None else Path(space),
        together,
        trials=trials,
        seeds=seeds,
        evaluations=evaluations,
        pruner=pruner,
        finalists=finalists,
    )
    return run_study(plan, name=name, tune_dir=tune_dir, seconds=seconds, reporter=reporter_for(reporter, progress))
