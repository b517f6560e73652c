"""``proximo convert``: reads settings of another library and writes ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from proximo.cli import Parser, UsageError
from proximo.errors import ConfigError, command, printable


def make_parser() -> Parser:
    """The flags of the verb."""
    parser = Parser(
        prog="proximo convert",
        description="Write settings of another library as a file for `proximo train --config`. What changes and what has no equal is listed "
        "on standard error.",
        usage='proximo convert FILE [--env ID] [--out FILE]\n       proximo convert "python ppo.py --env-id CartPole-v1 ..." [--out FILE]',
    )
    parser.add_argument(
        "source",
        metavar="FILE",
        help="a file of hyperparameters of RL Zoo, a config of recurrent-ppo-truncated-bptt, or a command line of CleanRL, pytorch-ppo, "
        "PPO-JAX or Baselines, as a file or as text",
    )
    parser.add_flag("--env", "the environment whose settings are read, if the file has several", "ID", default="")
    parser.add_flag("--out", "file to write (default: standard output)", "FILE", type=Path)
    return parser


def run(options: argparse.Namespace) -> int:
    """Convert, print the report, and write the file."""
    from proximo.convert import convert

    converted = convert(options.source, options.env)
    print(printable(converted.report), file=sys.stderr)
    if options.out is None:
        print(converted.yaml, end="")
        return 0
    try:
        if Path(options.source).exists() and options.out.exists() and options.out.samefile(options.source):
            raise UsageError(f"--out {options.out} is the file that is converted: choose another name.")
        options.out.write_text(converted.yaml, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot write --out {options.out} ({error.strerror}).") from error
    print(f"\nNext:  {command('proximo', 'train', '--config', options.out)}", file=sys.stderr)
    return 0
