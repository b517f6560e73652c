"""The command line: one file a verb."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from proximo import __version__
from proximo.cli.colour import paint
from proximo.errors import ProximoError, TrainingError, nearest, printable

VERBS = {
    "train": "train a policy: makes a run directory",
    "watch": "watch a trained policy play: a window, or a video",
    "eval": "play whole episodes with a trained policy",
    "tune": "search for settings, and write them as a preset",
    "report": "write a page with curves and tables about runs",
    "export": "write a policy as files that need neither proximo nor JAX",
    "push": "publish a policy: in a folder, or on the Hugging Face Hub",
    "pull": "fetch a published policy: it becomes a run",
    "check": "look whether an environment is fit for training",
    "envs": "list the environments",
    "doctor": "look whether this machine is fit for training",
    "completion": "print the script that lets a shell complete all this",
}
COMPLETE = "__complete"
"""What that script asks; no verb for people."""


class UsageError(ProximoError):
    """The command line itself is wrong."""


class Parser(argparse.ArgumentParser):
    """Raises instead of printing its usage, so that every mistake ends as one sentence."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        # argparse takes -1e-3 for a flag: its own expression knows no exponents.
        self._negative_number_matcher = re.compile(r"^-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}; see `{self.prog} --help`.")


def first_clause(text: str, ends: str = ";:\n") -> str:
    """The beginning of a help text, where there is no room for all of it."""
    return re.split(f"[{ends}]", text)[0]


class _Help(argparse.Action):
    """Prints a help text and ends: that of ``short()`` for ``--help``, which fits a screen, or all of it."""

    def __init__(self, *arguments: Any, short: Callable[[], Parser], **options: Any):
        super().__init__(*arguments, **options, nargs=0)
        self.short = short

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        (parser if option_string == "--help-all" else self.short()).print_help()
        parser.exit()


def add_help(parser: Parser, text: str, short: Callable[[], Parser]) -> None:
    """``--help`` of the parser that ``short`` makes, and ``--help-all``, for verbs that take every setting."""
    parser.add_argument("-h", "--help", action=_Help, short=short, help=text)
    parser.add_argument("--help-all", action=_Help, short=short, help="show all settings")


def _parser() -> Parser:
    lines = "\n".join(f"  {verb:<12}{text}" for verb, text in VERBS.items())
    parser = Parser(
        prog="proximo",
        description="Proximal Policy Optimization, complete.",
        epilog=f"verbs:\n{lines}\n\n`proximo VERB --help` explains a verb. Begin with: proximo train CartPole-v1",
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
        with _ends_at_once("--json" in arguments), _short_warnings():
            return _dispatch(arguments)
    except ProximoError as error:
        _tell(arguments, str(error))
        return 2
    except TrainingError as error:
        _tell(arguments, str(error))
        if getattr(error, "ends_process", False):
            os._exit(1)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _tell(arguments, "interrupted.")
        return 130
    except Exception as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            if "--json" in arguments:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
            raise
        detail = " ".join(str(error).split("\n")[0].split()) or "MemoryError"
        _tell(arguments, f"The memory does not suffice ({detail}): lower num_envs, num_steps or the network's sizes.")
        return 2


@contextlib.contextmanager
def _ends_at_once(as_json: bool) -> Iterator[None]:
    """Until a verb handles it otherwise, Ctrl-C ends the process: a KeyboardInterrupt is lost in JAX's callbacks and leaves half-imported
    modules, and nothing is to be saved yet. ``as_json``: with an object on what is standard output now."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    answer = os.dup(1) if as_json else None

    def leave(*_: Any) -> NoReturn:
        if answer is not None:
            os.write(answer, b'{"error": "interrupted."}\n')
        os._exit(130)

    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if answer is not None:
            os.close(answer)


@contextlib.contextmanager
def _short_warnings() -> Iterator[None]:
    """Print Python warnings of proximo as one line, without the line of source that raised them."""
    usual, ours = warnings.showwarning, str(Path(__file__).parents[1])

    def show(message: Warning | str, category: type[Warning], filename: str, *arguments: Any) -> None:
        if filename.startswith(ours):
            print(f"warning: {printable(str(message))}", file=sys.stderr, flush=True)
        else:
            usual(message, category, filename, *arguments)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


def _tell(arguments: list[str], message: str) -> None:
    """The sentence on standard error; with ``--json`` an object with it on standard output too, which is never left empty."""
    if "--json" in arguments:
        print(json.dumps({"error": message}), flush=True)
    print(f"{paint('proximo:', 'red', sys.stderr)} {printable(message)}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def quiet_stdout(quiet: bool) -> Iterator[None]:
    """Where ``quiet``, what is written to standard output goes to standard error: by Python, and below it by an environment's
    native code."""
    if not quiet:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        parser = _parser()
        parser.parse_args(arguments)
        parser.print_help()
        return 0
    verb = arguments[0]
    if verb == COMPLETE:
        return importlib.import_module("proximo.cli.candidates").run(arguments[1:])
    if verb not in VERBS:
        raise UsageError(f"Unknown verb {verb!r}{nearest(verb, VERBS)}: expected one of {', '.join(VERBS)}.")
    return importlib.import_module(f"proximo.cli.{verb}").run(arguments[1:])
