"""Search for good settings, starting from the preset and --config. Settings given as flags stay fixed.

proximo tune ENV [--trials N] [--seconds S] [--SETTING VALUE ...]
proximo tune --resume STUDY
"""

from pathlib import Path
from typing import Any

from proximo.cli import Options, Parser, UsageError, print_json, quiet_stdout
from proximo.cli.setting_flags import SettingsParser, add_setting
from proximo.config import BY_NAME, LEAVES, text_of
from proximo.errors import command, require
from proximo.serialization import dump_yaml
from proximo.tracking.progress import amount, number

RUN_SETTINGS = ("seed", "eval_episodes", "eval_max_steps", "matmul_precision", "updates_per_call")
"""Settings of a run that also apply to a trial, which writes no run directory."""
SEARCH = ("trials", "seeds", "together", "evaluations", "pruner", "finalists")
WITH_RESUME = ("resume", "trials", "seconds", "tune_dir", "quiet", "json", "settings")
REPORTED_SEEDS = 10


def make_parser() -> Parser:
    note = "Every setting can be fixed for all trials by its flag: `--help-all`."
    parser = SettingsParser("tune", __doc__, (), note, "--trials 20", "trials write no runs")
    add = parser.add
    add("env", "environment id; `proximo envs` lists them", "ENV", nargs="?", default="")
    add("--trials", "number of trials, including the initial settings (default 64)", "N")
    add("--seconds", "time limit in seconds, final round included (default: no limit)", "SECONDS")
    add("--seeds", "seeds of each trial; its score is their mean (default 2)", "N")
    add("--together", "trials in one program (default 8; 1 for Gymnasium environments)", "N")
    add("--space", "YAML of the search space, such as `num_steps: [64, 128]`", "FILE")
    add("--show-space", "print the search space as YAML and exit")
    add("--evaluations", "evaluations of a trial; each but the last can end it early (default 4)", "N")
    add("--pruner", "rule that ends trials early (default median)", choices=("median", "halving", "none"))
    add("--finalists", "best trials to train again on other seeds (default 3)", "N")
    parser.add_shared("--config", "--no-preset")
    add("--name", "name of the study (default: date and time)", "NAME", default="")
    add("--tune-dir", "folder of all studies (default tune)", "FOLDER", default=Path("tune"))
    add("--resume", "continue a study: a path, a name, or last", "STUDY")
    parser.add_shared("--quiet", "--json")
    section = parser.add_argument_group("settings, fixed for all trials")
    for leaf in LEAVES.values():
        if leaf.name != "id" and (leaf.group != "run" or leaf.name in RUN_SETTINGS):
            add_setting(section, leaf)
    return parser


def run(options: Options) -> int:
    resumes, settings = options.resume is not None, options.settings
    if resumes:
        default = make_parser().get_default
        changed = (name for name, value in vars(options).items() if name not in WITH_RESUME and value != default(name))
        if given := [name if name == "env" else f"--{name.removeprefix('setting_').replace('_', '-')}" for name in changed]:
            raise UsageError(
                f"--resume continues a study with its settings: only --trials and --seconds can change, not {', '.join(given)}."
            )
    # Imported here, so that help and mistakes in flags do not wait for JAX.
    from proximo.tuning.api import resume, tune

    require("optuna", "`proximo tune`", "tune")
    from proximo.cli.reporters import open_reporter
    from proximo.settings import make_config
    from proximo.tracking.progress import StudyProgress
    from proximo.tuning.plan import make_plan
    from proximo.tuning.space import as_mapping

    with open_reporter(StudyProgress, options.quiet, options.json) as reporter, quiet_stdout(options.json):
        session = {"tune_dir": options.tune_dir, "seconds": options.seconds, "reporter": reporter}
        if resumes:
            result = resume(options.resume, trials=options.trials, **session)
        else:
            config = make_config(options.env, settings, options.config, preset=not options.no_preset)
            if "seed" in settings and config.run.seed < REPORTED_SEEDS:
                reporter.warned(
                    f"seed = {config.run.seed}: the search uses seeds that are meant for reports (0 … {REPORTED_SEEDS - 1}): report its "
                    "result on other seeds."
                )
            if options.show_space:
                plan = make_plan(config, settings, options.space, reporter)
                print(dump_yaml(as_mapping(plan.space), default_flow_style=None), end="")
                return 0
            search = {name: value for name in SEARCH if (value := getattr(options, name)) is not None}
            result = tune(config=config, space=options.space, name=options.name, **search, **session, **settings)
    if options.json:
        print_json(result.summary())
    elif not options.quiet and result.best is not None:
        print_result(result)
    return 128 + result.interrupted if result.interrupted else 0


def print_result(result: Any) -> None:
    """Print the settings of the best trial, its scores and the base's, and how to train with them."""
    from proximo.tuning.plan import FINAL, TEST, TRIAL
    from proximo.tuning.space import plain

    best, done = result.best, result.counts["done"]
    print(f"\n{len(result.trials)} trials: " + ", ".join(f"{n} {state}" for state, n in result.counts.items() if n))
    named = {TRIAL: ("seed", ""), FINAL: ("seed", " of the final round"), TEST: ("test seed", "")}
    for trial in (result.trials[0], best) if best.number else (best,):
        scores = [(trial.mean(kind), len(trial.scores.get(kind, ())), *names) for kind, names in named.items()]
        listed = [f"{number(mean)} on {amount(count, noun)}{of}" for mean, count, noun, of in scores if count]
        print(f"{trial.name.removeprefix('the '):>12}  {', '.join(listed)}")
    if best.scores.get(TEST):
        print("Report the score on the test seeds: no choice depends on them.")
    elif TEST in best.scores:
        print("The winner failed on its test seeds (NaN or infinity): its other scores are too high on average.")
    elif done > 1:
        print(f"The winner was not tested on other seeds: its score is the highest of {done} and too high on average.")
    if best.number == 0:
        print("No trial was better than the base.")
    configs = (result.plan.base, result.plan.config(best))
    before, after = ({name: text_of(plain(BY_NAME[name].value_in(config))) for name in result.plan.space} for config in configs)
    for name in sorted(before, key=lambda name: (before[name] == after[name], BY_NAME[name].group)):
        changed = f"  (base {before[name]})" if before[name] != after[name] else ""
        print(f"    {name:<{max(map(len, before))}}  {after[name]}{changed}")
    print(f"See:   {result.folder / 'trials.csv'}")
    print(f"Next:  {command('proximo', 'train', '--config', result.preset)}")
