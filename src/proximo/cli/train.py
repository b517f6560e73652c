"""``proximo train``."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

from proximo.cli import Pairs, Parser, UsageError, add_help, first_clause, print_json, quiet_stdout
from proximo.config import GROUPS, LEAVES, Config, check_names, text_of, to_mapping, unknown
from proximo.config.coercion import SCHEDULE, BoolOrAuto, CountOrAll, Leaf, SizesOrSame
from proximo.config.custom import choices, takes_custom
from proximo.serialization import dump_yaml

COMMON = (
    "total_steps", "num_envs", "num_steps", "num_epochs", "learning_rate", "gamma", "ent_coef", "hidden_sizes", "memory", "seed", "seeds",
    "name", "track",
)  # fmt: skip
"""The settings that ``--help`` shows."""


def run(arguments: list[str]) -> int:
    """Parse the arguments, train, and print the result."""
    options, settings = parse(arguments)
    if options.distributed:
        return run_with_others(options, settings)
    for flag in ("coordinator", "num_processes", "process_id", "heartbeat"):
        if getattr(options, flag) is not None:
            raise UsageError(f"--{flag.replace('_', '-')} has no effect without --distributed: add it.")
    return run_here(options, settings)


def run_with_others(options: argparse.Namespace, settings: dict[str, Any]) -> int:
    """Train together with other processes. This one ends when all do, or with an error when one is lost."""
    if settings.get("devices", "all") != "all":
        raise UsageError("Several processes use all of their devices together: omit --devices.")
    from proximo.processes import join

    peers = join(options.coordinator, options.num_processes, options.process_id, options.heartbeat)
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

                if config.env.id:
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
    lines = dump_yaml(to_mapping(config), width=float("inf")).splitlines(keepends=True)
    names = [line[2:].partition(":")[0] for line in lines]
    return "".join(
        f"{line.rstrip()}  # {config.origins[name]}\n" if line.startswith(f"  {name}:") and name in config.origins else line
        for line, name in zip(lines, names, strict=True)
    )


def summary(results: list[Any]) -> dict[str, Any]:
    """The JSON object: ``{run_dir, steps, seconds, compile_seconds, evaluation_seconds, steps_per_second, return_mean}``.

    Several seeds are listed under ``seeds``. ``run_dir`` is then their parent, ``steps_per_second`` is that of all seeds together, and the
    other values are means over the seeds.
    """
    from proximo.cli.reporters import total_speed

    names = ("run_dir", "steps", "seconds", "compile_seconds", "evaluation_seconds", "steps_per_second", "return_mean")
    rows: list[dict[str, Any]] = [{n: str(r.run_dir) if n == "run_dir" else getattr(r, n) for n in names} for r in results]
    if len(rows) == 1:
        return rows[0]
    figures = {n: [row[n] for row in rows if row[n] is not None] for n in names if n != "run_dir"}
    means = {n: sum(values) / len(values) if values else None for n, values in figures.items()}
    means["steps"] = round(means["steps"] or 0)
    means["steps_per_second"] = total_speed(results)
    return {"run_dir": str(results[0].run_dir.parent), **means, "seeds": rows}


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
    check_names(name for name in flags.values() if name != "id")
    if "id" in flags.values():
        raise unknown("id")
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
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML of settings, such as a run's config.yaml")
    parser.add_argument("--resume", metavar="RUN", help="continue a run: a path, a name or last, optionally with @best or @STEP")
    parser.add_argument("--no-preset", action="store_true", help="no preset, and no defaults by kind")
    parser.add_argument("--show-config", action="store_true", help="print all settings with their origins, and exit")
    parser.add_argument("--smoke", action="store_true", help="run only three updates, to test that everything works")
    others = "train together with other processes, which run the same command"
    parser.add_argument("--distributed", action="store_true", help=argparse.SUPPRESS if short else others)
    if not short:
        parser.add_argument("--coordinator", metavar="HOST:PORT", help="with --distributed: address of process 0")
        parser.add_argument("--num-processes", type=int, metavar="N", help="with --distributed: number of processes")
        parser.add_argument("--process-id", type=int, metavar="I", help="with --distributed: number of this process, from 0")
        help_text = "with --distributed: after this time, a process that does not answer or hangs ends the run (default 100)"
        parser.add_argument("--heartbeat", type=float, metavar="SECONDS", help=help_text)
    parser.add_argument("--quiet", action="store_true", help="print only warnings, to stderr")
    parser.add_argument("--json", action="store_true", help="print one JSON object to stdout and the rest to stderr")
    if short:
        section = parser.add_argument_group("common settings")
        for name in shown:
            add_setting(section, LEAVES[name], brief=True)
        return parser
    for group in GROUPS:
        section = parser.add_argument_group(f"{group} settings")
        for leaf in LEAVES.values():
            if leaf.group == group and leaf.name != "id":
                add_setting(section, leaf)
    return parser


_KINDS = {
    int: "INT",
    float: "FLOAT",
    str: "TEXT",
    SCHEDULE: "FLOAT|SCHEDULE",
    SizesOrSame: "LIST|same",
    CountOrAll: "INT|all",
    dict[str, Any]: "KEY=VALUE,...",
}
_SWITCHES = {bool: "true|false", BoolOrAuto: "auto|true|false"}
"""Types of settings whose flag without a value means true, and the values for the help."""


def add_setting(section: Any, leaf: Leaf, brief: bool = False) -> None:
    """Add the flag of a setting to a command's parser. ``brief`` shows only the first clause of its help."""
    flag = "--" + leaf.name.replace("_", "-")
    default = text_of(leaf.default) if isinstance(leaf.default, tuple) else leaf.default
    shown = "" if default in ("", {}) else f" (default {str(default).lower() if isinstance(default, bool) else default})"
    common: dict[str, Any] = {
        "dest": f"setting_{leaf.name}",
        "default": None,
        "help": (first_clause(leaf.help) if brief else leaf.help).replace("%", "%%") + shown,
        **({"action": Pairs} if isinstance(leaf.default, dict) or leaf.type == tuple[str, ...] else {}),
    }
    if leaf.type in _SWITCHES:
        section.add_argument(flag, nargs="?", const="true", metavar=_SWITCHES[leaf.type], **common)
        section.add_argument(
            flag.replace("--", "--no-", 1), action="store_const", const="false", **{**common, "help": argparse.SUPPRESS}
        )
    else:
        words = [*filter(None, choices(leaf.type)), *(["MODULE:NAME"] if choices(leaf.type) and takes_custom(leaf.type) else [])]
        kinds = _KINDS.get(leaf.type, "LIST").split("|")
        flags = [flag, *(["--wrapper"] if leaf.name == "wrappers" else [])]
        section.add_argument(*flags, metavar="|".join(words or kinds[: 1 if brief else None]), **common)
    if "_" in leaf.name:
        hidden = {**common, "help": argparse.SUPPRESS}
        section.add_argument(f"--{leaf.name}", **({"nargs": "?", "const": "true"} if leaf.type in _SWITCHES else {}), **hidden)
