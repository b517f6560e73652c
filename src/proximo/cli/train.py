"""``proximo train``."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

from proximo.cli import Pairs, Parser, UsageError, add_help, first_clause, print_json, quiet_stdout
from proximo.config import ENTRIES, GROUPS, LEAVES, Config, check_names, text_of, to_mapping, unknown
from proximo.config.coercion import SCHEDULE, BoolOrAuto, CountOrAll, Leaf, SizesOrSame
from proximo.config.custom import choices, takes_custom
from proximo.serialization import dump_yaml

COMMON = (
    "total_steps", "num_envs", "num_steps", "num_epochs", "learning_rate", "gamma", "ent_coef", "hidden_sizes", "memory", "seed", "seeds",
    "name", "track",
)  # fmt: skip
"""The settings that ``--help`` shows."""
PROCESSES = ("coordinator", "num_processes", "process_id", "heartbeat")
RESULTS = ("run_dir", "steps", "seconds", "compile_seconds", "evaluation_seconds", "steps_per_second", "return_mean")


def run(arguments: list[str]) -> int:
    """Parse the arguments, train, and print the result."""
    options, settings = parse(arguments)
    if options.distributed:
        return run_with_others(options, settings)
    for flag in PROCESSES:
        if getattr(options, flag) is not None:
            raise UsageError(f"--{flag.replace('_', '-')} has no effect without --distributed: add it.")
    return run_here(options, settings)


def run_with_others(options: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Train together with other processes. This one ends when all do, or with an error when one is lost."""
    if settings.get("devices", "all") != "all":
        raise UsageError("Several processes use all of their devices together: omit --devices.")
    from proximo.processes import join

    peers = join(*(getattr(options, flag) for flag in PROCESSES))
    with peers.failing_together(), quiet_stdout(not peers.is_first):  # only process 0 prints
        options.quiet |= not peers.is_first
        code = run_here(options, settings)
    peers.finish()
    return code


def run_here(options: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Train, and print the result."""
    # Imported here, so that help and mistakes in flags do not wait for JAX.
    from proximo.cli.reporters import TrainingReporter, open_reporter
    from proximo.config.loading import shortened
    from proximo.settings import make_config
    from proximo.training.api import resume, train

    # With --json, stdout contains only the object.
    with open_reporter(TrainingReporter, options.quiet, options.json) as reporter:
        if options.resume is not None:
            if options.config or options.smoke or options.no_preset or options.show_config:
                raise UsageError(
                    "--resume continues a run with its settings, which are in its config.yaml: omit --config, --no-preset, --show-config "
                    "and --smoke."
                )
            with quiet_stdout(options.json):
                results = resume(options.resume, env=options.env or "", reporter=reporter, **settings)
        else:
            with quiet_stdout(options.json or options.show_config):  # an environment may print
                config = make_config(options.env or "", settings, options.config, preset=not options.no_preset)
            if options.show_config:
                from proximo.envs.registry import check_id

                check_id(config.env.id)
                print(with_origins(config), end="")
                return 0
            with quiet_stdout(options.json):
                results = train(config=shortened(config) if options.smoke else config, reporter=reporter)
    if options.json:
        print_json(summary(results))
    interrupted = next((r.interrupted for r in results if r.interrupted), None)
    return 128 + interrupted if interrupted else 0


def with_origins(config: Config) -> str:
    """The settings as YAML. A comment names the preset, file or flag that a value comes from; values without a comment are defaults."""
    lines = dump_yaml(to_mapping(config), width=float("inf")).splitlines()
    origins = {f"  {name}": f"  # {origin}" for name, origin in config.origins.items()}
    return "".join(f"{line.rstrip()}{origins.get(line.partition(':')[0], '')}\n" for line in lines)


def summary(results: list[Any]) -> dict[str, Any]:
    """The JSON object, with the ``RESULTS``.

    Several seeds are listed under ``seeds``. ``run_dir`` is then their parent, ``steps_per_second`` is the speed of all seeds together,
    and the other values are means over the seeds.
    """
    from proximo.cli.reporters import total_speed

    rows: list[dict[str, Any]] = [{n: getattr(r, n) for n in RESULTS} | {"run_dir": str(r.run_dir)} for r in results]
    if len(rows) == 1:
        return rows[0]
    figures = {name: [row[name] for row in rows if row[name] is not None] for name in RESULTS[1:]}
    means = {name: sum(values) / len(values) if values else None for name, values in figures.items()}
    total = {
        "run_dir": str(results[0].run_dir.parent),
        "steps": round(means["steps"] or 0),
        "steps_per_second": total_speed(results),
    }
    return {"run_dir": "", **means, **total, "seeds": rows}


def parse(arguments: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Parse into options of the command and settings. Raises ``ConfigError`` for an unknown setting."""
    return parse_settings(make_parser(), arguments, "--num-envs 16")


def parse_settings(
    parser: Parser, arguments: list[str], example: str, why_not: str = ""
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """The options of a command that accepts settings, and the settings that the user gave.

    For messages, ``example`` is a flag of the command, and ``why_not`` is why it does not accept every setting.
    """
    options, unread = parser.parse_known_args(arguments)
    flags = {word: word.removeprefix("--").partition("=")[0] for word in unread if word.startswith("--")}
    for word, name in flags.items():
        if why_not and name.replace("-", "_").removeprefix("no_") in LEAVES:
            raise UsageError(f"`{parser.prog}` does not accept {word}, because {why_not}; see `{parser.prog} --help`.")
        if name == "id" or name.replace("-", "_") in ENTRIES:
            raise unknown(name)
    check_names(flags.values())
    if unread:
        raise UsageError(
            f"Unexpected {unread[0]!r}: expected one environment, then flags, as in `{parser.prog} CartPole-v1 {example}`. Several values of a "
            "flag are separated by commas, as in `--hidden-sizes 64,64`."
        )
    return options, given_settings(options)


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the user gave as flags."""
    return {name: value for name in LEAVES if (value := getattr(options, f"setting_{name}", None)) is not None}


def make_parser(shown: Collection[str] = tuple(LEAVES)) -> Parser:
    """The flags of the command, with flags for the settings in ``shown``."""
    short = len(shown) < len(LEAVES)
    parser = Parser(
        prog="proximo train",
        description="Train a policy. Settings: default < preset < --config < flag.",
        usage="proximo train [ENV] [--SETTING VALUE ...]\n       proximo train --resume RUN",
        epilog="All settings: --help-all. Their values for an environment: ENV --show-config." if short else None,
        add_help=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=25 if short else 24),
    )
    parser.add_argument("env", nargs="?", metavar="ENV", help="environment id; `proximo envs` lists them")
    add_help(parser, "show common settings", lambda: make_parser(COMMON))
    parser.add_config()
    parser.add_flag("--resume", "continue a run: a path, a name or last, optionally with @best or @STEP", "RUN")
    parser.add_flag("--show-config", "print all settings with their origins, and exit")
    parser.add_flag("--smoke", "run only three updates, to test that everything works")
    others = "train together with other processes, which run the same command"
    parser.add_flag("--distributed", argparse.SUPPRESS if short else others)
    if not short:
        parser.add_flag("--coordinator", "with --distributed: address of process 0", "HOST:PORT")
        parser.add_flag("--num-processes", "with --distributed: number of processes", "N", type=int)
        parser.add_flag("--process-id", "with --distributed: number of this process, from 0", "I", type=int)
        limit = "with --distributed: after this time, a process that does not answer or hangs ends the run (default 100)"
        parser.add_flag("--heartbeat", limit, "SECONDS", type=float)
    parser.add_flag("--quiet", "print only warnings, to stderr")
    parser.add_json("print one JSON object to stdout and the rest to stderr")
    sections = {"common": shown} if short else {group: [n for n in shown if LEAVES[n].group == group] for group in GROUPS}
    for title, names in sections.items():
        section = parser.add_argument_group(f"{title} settings")
        for name in names:
            if name != "id":
                add_setting(section, LEAVES[name], brief=short)
    return parser


_KINDS = {
    int: "INT", float: "FLOAT", str: "TEXT", SCHEDULE: "FLOAT|SCHEDULE", SizesOrSame: "LIST|same", CountOrAll: "INT|all",
    dict[str, Any]: "KEY=VALUE,...",
}  # fmt: skip
_SWITCHES = {bool: "true|false", BoolOrAuto: "auto|true|false"}
"""Types of settings whose flag without a value means true, and the values for the help."""


def add_setting(section: Any, leaf: Leaf, brief: bool = False) -> None:
    """Add the flag of a setting to a command's parser. ``brief`` shows only the first clause of its help."""
    flag, is_switch = "--" + leaf.name.replace("_", "-"), leaf.type in _SWITCHES
    default = str(leaf.default).lower() if isinstance(leaf.default, bool) else leaf.default
    default = text_of(default) if isinstance(default, tuple | dict) else str(default)
    help_text = (first_clause(leaf.help) if brief else leaf.help).replace("%", "%%") + (
        f" (default {default})" if default else ""
    )
    has_pairs = leaf.entries or isinstance(leaf.default, dict)
    words = [*filter(None, choices(leaf.type)), *(["MODULE:NAME"] if choices(leaf.type) and takes_custom(leaf.type) else [])]
    kinds = _SWITCHES.get(leaf.type, "KEY=VALUE,..." if has_pairs else _KINDS.get(leaf.type, "LIST")).split("|")
    common: dict[str, Any] = {
        "dest": f"setting_{leaf.name}",
        "metavar": "|".join(words or kinds[: 1 if brief and not is_switch else None]),
        **({"action": Pairs} if has_pairs or leaf.type == tuple[str, ...] else {}),
        **({"nargs": "?", "const": "true"} if is_switch else {}),
    }
    section.add_argument(flag, *(["--wrapper"] if leaf.name == "wrappers" else []), help=help_text, **common)
    if "_" in leaf.name:
        section.add_argument(f"--{leaf.name}", help=argparse.SUPPRESS, **common)
    if is_switch:
        off = flag.replace("--", "--no-", 1)
        section.add_argument(off, dest=common["dest"], action="store_const", const="false", help=argparse.SUPPRESS)
