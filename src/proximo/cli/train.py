"""Train a policy. Settings: default < preset < --config < flag.

proximo train [ENV] [--SETTING VALUE ...]
proximo train --resume RUN
"""

import statistics
from typing import Any

from proximo.cli import Options, Parser, UsageError, print_json, quiet_stdout
from proximo.cli.setting_flags import SettingsParser, add_setting
from proximo.config import GROUPS, LEAVES, to_mapping
from proximo.serialization import dump_yaml

COMMON = (
    "total_steps", "num_envs", "num_steps", "num_epochs", "learning_rate", "gamma", "ent_coef", "hidden_sizes", "memory", "seed", "seeds",
    "name", "track",
)  # fmt: skip
"""The settings that ``--help`` shows."""
PROCESSES = ("coordinator", "num_processes", "process_id", "heartbeat")
RESULTS = ("run_dir", "steps", "seconds", "compile_seconds", "evaluation_seconds", "steps_per_second", "return_mean")


def make_parser() -> Parser:
    note = "All settings: --help-all. Their values for an environment: ENV --show-config."
    parser = SettingsParser("train", __doc__, COMMON, note, "--num-envs 16")
    parser.add("env", "environment id; `proximo envs` lists them", "ENV", nargs="?", default="")
    parser.add_shared("--config", "--no-preset")
    parser.add("--resume", "continue a run: a path, a name or last, optionally with @best or @STEP", "RUN")
    parser.add("--show-config", "print all settings with their origins, and exit")
    parser.add("--smoke", "run only three updates, to test that everything works")
    parser.add_shared("--quiet", "--json")
    add = parser.add_argument_group("several processes, with --distributed").add_argument
    add("--distributed", action="store_true", help="train together with other processes, which run the same command")
    add("--coordinator", metavar="HOST:PORT", help="address of process 0")
    add("--num-processes", type=int, metavar="N", help="number of processes")
    add("--process-id", type=int, metavar="I", help="number of this process, from 0")
    limit = "after this time, a process that does not answer or hangs ends the run (default 100)"
    add("--heartbeat", type=float, metavar="SECONDS", help=limit)
    for group in GROUPS:
        section = parser.add_argument_group(f"{group} settings")
        for leaf in LEAVES.values():
            if leaf.group == group and leaf.name != "id":
                add_setting(section, leaf)
    return parser


def run(options: Options) -> int:
    if not options.distributed:
        for flag in PROCESSES:
            if getattr(options, flag) is not None:
                raise UsageError(f"--{flag.replace('_', '-')} has no effect without --distributed: add it.")
        return _train(options)
    if options.settings.get("devices", "all") != "all":
        raise UsageError("Several processes use all of their devices together: omit --devices.")
    from proximo.processes import join

    peers = join(*(getattr(options, flag) for flag in PROCESSES))
    with peers.failing_together(), quiet_stdout(not peers.is_first):  # only process 0 prints
        options.quiet |= not peers.is_first
        code = _train(options)
    peers.finish()
    return code


def _train(options: Options) -> int:
    """Train, and print the result. With --json, stdout contains only the object."""
    # Imported here, so that help and mistakes in flags do not wait for JAX.
    from proximo.cli.reporters import TrainingReporter, open_reporter
    from proximo.config.loading import shortened
    from proximo.settings import make_config
    from proximo.training.api import resume, train

    resumes, shows = options.resume is not None, options.show_config
    if resumes and (options.config or options.smoke or options.no_preset or shows):
        raise UsageError(
            "--resume continues a run with its settings, which are in its config.yaml: omit --config, --no-preset, --show-config and --smoke."
        )
    with open_reporter(TrainingReporter, options.quiet, options.json) as reporter, quiet_stdout(options.json and not shows):
        if resumes:
            results = resume(options.resume, env=options.env, reporter=reporter, **options.settings)
        else:
            with quiet_stdout(shows):
                config = make_config(options.env, options.settings, options.config, preset=not options.no_preset)
            if shows:
                from proximo.envs.registry import check_id

                check_id(config.env.id)
                # As YAML, with the origin of each setting as a comment; others are defaults.
                origins = {f"  {name}": f"  # {origin}" for name, origin in config.origins.items()}
                for line in dump_yaml(to_mapping(config), width=float("inf")).splitlines():
                    print(line.rstrip() + origins.get(line.partition(":")[0], ""))
                return 0
            results = train(config=shortened(config) if options.smoke else config, reporter=reporter)
    if options.json:
        print_json(summary(results))
    interrupted = next((r.interrupted for r in results if r.interrupted), None)
    return 128 + interrupted if interrupted else 0


def summary(results: list[Any]) -> dict[str, Any]:
    """The JSON object, with the ``RESULTS``. Several seeds are listed under ``seeds``: ``run_dir`` is then their parent,
    ``steps_per_second`` is the speed of all together, and the other values are means."""
    from proximo.cli.reporters import total_speed

    rows: list[dict[str, Any]] = [{n: getattr(r, n) for n in RESULTS} | {"run_dir": str(r.run_dir)} for r in results]
    if len(rows) == 1:
        return rows[0]
    figures = {name: [row[name] for row in rows if row[name] is not None] for name in RESULTS[1:]}
    means = {name: statistics.fmean(values) if values else None for name, values in figures.items()}
    means |= {"steps": round(statistics.fmean(figures["steps"])), "steps_per_second": total_speed(results)}
    return {"run_dir": str(results[0].run_dir.parent), **means, "seeds": rows}
