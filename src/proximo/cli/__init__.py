"""The command line: one file a verb."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import NoReturn

from proximo import __version__
from proximo.errors import ProximoError, TrainingError, nearest

VERBS = {
    "train": "train a policy: makes a run directory",
    "eval": "play whole episodes with a trained policy",
    "envs": "list the environments",
    "doctor": "look whether this machine is fit for training",
}


class UsageError(ProximoError):
    """The command line itself is wrong."""


class Parser(argparse.ArgumentParser):
    """Raises instead of printing its usage, so that every mistake ends as one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}; see `{self.prog} --help`.")


def _parser() -> Parser:
    lines = "\n".join(f"  {verb:<8}{text}" for verb, text in VERBS.items())
    parser = Parser(
        prog="proximo",
        description="Proximal Policy Optimization, complete.",
        epilog=f"verbs:\n{lines}\n\n`proximo VERB --help` explains a verb. Begin with: proximo train gymnax:CartPole-v1",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="proximo VERB [...]",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"proximo {__version__}")
    parser.add_argument("verb", nargs="?", help=argparse.SUPPRESS)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Exit code 0: fine; 2: the user's mistake, in one sentence; 1: ours."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a user's own `module:Class` lies where he stands
    try:
        return _dispatch(arguments)
    except ProximoError as error:
        print(f"proximo: {error}", file=sys.stderr)
        return 2
    except TrainingError as error:
        print(f"proximo: {error}", file=sys.stderr, flush=True)
        if getattr(error, "ends_process", False):
            os._exit(1)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        parser = _parser()
        parser.parse_args(arguments)
        parser.print_help()
        return 0
    verb = arguments[0]
    if verb not in VERBS:
        raise UsageError(f"Unknown verb {verb!r}{nearest(verb, VERBS)}: expected one of {', '.join(VERBS)}.")
    return importlib.import_module(f"proximo.cli.{verb}").run(arguments[1:])
