"""The command line. Each command has one file: ``make_parser`` makes its flags, and ``run`` does its work and returns the exit code."""

import argparse
import atexit
import contextlib
import errno
import faulthandler
import gc
import importlib
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from proximo import __version__
from proximo.errors import ProximoError, TrainingError, nearest, printable
from proximo.streams import discard_output, redirected

VERBS = {
    "train": "train a policy and save it in a run directory",
    "launch": "train with several processes of this machine",
    "watch": "show a trained policy in a window or a video",
    "eval": "evaluate a trained policy on whole episodes",
    "tune": "search for good settings and save them as a preset",
    "report": "write a page with learning curves and tables of runs",
    "export": "write a policy as files that run without proximo and JAX",
    "push": "publish a policy in a folder or on the Hugging Face Hub",
    "pull": "download a published policy as a run",
    "convert": "write settings of another library as ours",
    "check": "check whether an environment can be trained",
    "envs": "list the environments",
    "doctor": "check whether this machine is ready for training",
    "completion": "print a script for completion by the Tab key",
}
GARBAGE_THRESHOLD = 50_000
"""New objects after which Python looks for garbage. Imports and tracing make a million objects that stay; with 700,
Python's default, a start takes half a second longer."""
TYPES = {"N": int, "SECONDS": float, "FPS": float, "FILE": Path, "FOLDER": Path}
"""The type of a value, by its placeholder in the help."""
COMPLETE = "__complete"
"""The completion script calls this command. It is not shown to users."""
_COLORS = {"green": 32, "yellow": 33, "red": 31}
RUN_HELP = "a path, a name or last; append @best, @last or @STEP for a checkpoint"
POLICY_HELP = f"{RUN_HELP}; or zoo:NAME, a policy that ships with proximo"


class UsageError(ProximoError):
    """The command line is invalid."""


class Parser(argparse.ArgumentParser):
    """The parser of a command. The docstring of its file, ``doc``, has the description and, after an empty line, the
    usage. Raises ``UsageError`` instead of printing the usage, so that every mistake becomes one sentence."""

    def __init__(self, verb: str, doc: str | None, **options: Any):
        text, _, usage = (doc or "").partition("\n\n")
        usage = usage.strip().replace("\n", "\n       ") or None
        super().__init__(f"proximo {verb}".strip(), usage, " ".join(text.split()), allow_abbrev=False, **options)
        self._words: list[str] = []
        # argparse takes -1e-3 for a flag, because its expression has no exponents.
        self._negative_number_matcher = re.compile(r"^-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        from proximo import other_libraries  # only now: `proximo --help` needs no other library

        known = self._option_string_actions
        flags = [word.partition("=")[0] for word in self._words if word.startswith("--")]
        takes_run = any(action.metavar == "RUN" for action in self._actions)
        answers = other_libraries.answer_flags([flag.removeprefix("--") for flag in flags if flag not in known], known, takes_run)
        raise UsageError(f"{message[:1].upper()}{message[1:]}; see `{self.prog} --help`.{answers}")

    def add(self, name: str, help: str, metavar: str | None = None, **options: Any) -> None:
        """Add an argument: a flag with a value if it has a ``metavar`` or ``choices``, else a switch."""
        kind: dict[str, Any] = {} if "choices" in options else {"action": "store_true"}
        if metavar:
            kind = {"metavar": metavar, "type": TYPES.get(metavar, str)}
        self.add_argument(name, help=help, **{**kind, **options})

    def add_shared(self, *flags: str) -> None:
        """Add flags that several commands have."""
        for flag in flags:
            help, metavar, options = SHARED[flag]
            self.add(flag, help, metavar, **options)


class Pairs(argparse.Action):
    """Joins the pairs of a flag that is given several times, as texts or as dicts."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        if earlier := getattr(namespace, self.dest):
            values = f"{earlier},{values}" if isinstance(values, str) else {**earlier, **values}
        setattr(namespace, self.dest, values)


def _env_settings(text: str) -> dict[str, Any]:
    from proximo.config import LEAVES
    from proximo.config.coercion import coerce

    return coerce(LEAVES["env_settings"], text)


SHARED: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "--runs-dir": ("folder of all runs (default runs)", "FOLDER", {"default": Path("runs")}),
    "--json": ("print one JSON object to stdout, and the rest to stderr", None, {}),
    "--quiet": ("print only warnings, to stderr", None, {}),
    "--config": ("YAML of settings, such as a run's config.yaml", "FILE", {}),
    "--no-preset": ("no preset, and no defaults by kind", None, {}),
    "--env": ("another environment with the same spaces (default: the training's)", "ENV", {}),
    "--seed": ("seed of the episodes, independent of the training's (default 0)", "N", {"default": 0}),
    "--levels": ("levels to play, such as 1000:1050 (default: the training's levels)", "FROM:TO", {}),
    "--env-settings": (
        "parameters of the environment to change", "KEY=VALUE,...", {"type": _env_settings, "action": Pairs, "default": {}},
    ),
}  # fmt: skip
EPISODE_FLAGS = "--seed", "--levels", "--env-settings"
"""The flags that choose the episodes of a trained policy."""
Options = argparse.Namespace


def first_clause(text: str, ends: str = ";:\n") -> str:
    """The first clause of a help text, for places without room for all of it."""
    return re.split(f"[{ends}]", text)[0]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line with the words after ``proximo``, by default this process's words. Returns the exit code:
    0: success, 2: a mistake of the user, 1: any other error, 130: Ctrl-C."""
    if arguments is None:  # the process is this command's own
        _prepare_streams()
        gc.set_threshold(GARBAGE_THRESHOLD)
        faulthandler.enable()  # a crash in an environment's native code shows where
        atexit.register(gc.freeze)  # the end of the process need not look for garbage
        arguments = sys.argv[1:]
    code, as_json = 0, "--json" in arguments
    try:
        with _exit_on_interrupt(as_json), short_warnings():
            code = _dispatch(arguments)
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output(sys.stdout)
    except (Exception, KeyboardInterrupt) as error:
        code, sentence = _failure(error)
        if as_json:
            try:
                print(json.dumps({"error": sentence or f"{type(error).__name__}: {error}"}), flush=True)
            except OSError:
                discard_output(sys.stdout)
        if sentence is None:
            raise
        print(f"{paint('proximo:', 'red', sys.stderr)} {printable(sentence)}", file=sys.stderr, flush=True)
        if getattr(error, "ends_process", False):
            os._exit(code)
    return code


def _failure(error: BaseException) -> tuple[int, str | None]:
    """The exit code and the sentence for an error; None if only its traceback explains it."""
    if isinstance(error, ProximoError | TrainingError):
        return 1 if isinstance(error, TrainingError) else 2, str(error)
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted."
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        try:
            sys.stdout.flush()
        except OSError:
            discard_output(sys.stdout)
        return 2, f"Cannot write {error.filename or 'the output or a file'} ({error.strerror})."
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        detail = " ".join(str(error).split("\n")[0].split()) or "MemoryError"
        return 2, f"Out of memory ({detail}): lower num_envs, num_steps or the sizes of the network."
    return 1, None


def _dispatch(arguments: list[str]) -> int:
    try:  # a user's `module:Class` is often in the current folder
        folder = os.getcwd()
    except FileNotFoundError:
        raise UsageError("The working folder does not exist any more: change to another one.") from None
    sys.path += [] if folder in sys.path else [folder]
    if not arguments or arguments[0].startswith("-"):
        lines = "\n".join(f"  {verb:<12}{text}" for verb, text in VERBS.items())
        epilog = f"commands:\n{lines}\n\n`proximo COMMAND --help` explains it. Start with: proximo train CartPole-v1"
        doc = "Proximal Policy Optimization, complete.\n\nproximo COMMAND [...]"
        parser = Parser("", doc, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--version", action="version", version=f"proximo {__version__}")
        parser.parse_args(arguments)
        parser.print_help()
        return 0
    verb, *words = arguments
    if verb == COMPLETE:
        return importlib.import_module("proximo.cli.completion").print_names(*words)
    if verb not in VERBS:
        from proximo import other_libraries

        ours = other_libraries.load(other_libraries.GENERAL).verbs.get(verb)
        hint = f" (use `proximo {ours}`)" if ours else nearest(verb, VERBS)
        raise UsageError(f"Unknown command {verb!r}{hint}: expected one of {', '.join(VERBS)}.")
    module = importlib.import_module(f"proximo.cli.{verb}")
    return module.run(module.make_parser().parse_args(words))


def _prepare_streams() -> None:
    """Discard the output of a closed stream (``>&-``), also of processes that are started; print ``?`` for characters
    that the encoding lacks."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            os.set_inheritable(number, True)  # dup2 does this only if the two differ
            setattr(sys, name, os.fdopen(number, "w", closefd=False, errors="replace"))
        elif getattr(stream, "errors", "") == "strict":
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def _exit_on_interrupt(as_json: bool) -> Iterator[None]:
    """Exit at once on Ctrl-C, until a command installs its own handler: JAX's callbacks lose a KeyboardInterrupt, which
    can also leave half-imported modules. With ``as_json``, first write a JSON object."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    with os.fdopen(os.dup(1), "wb", buffering=0) if as_json else contextlib.nullcontext() as answer:

        def leave(*_: Any) -> NoReturn:
            if answer is not None:
                answer.write(b'{"error": "interrupted."}\n')
            os._exit(130)

        signal.signal(signal.SIGINT, leave)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Print Python warnings of proximo as one line, without the line of source that raised them."""
    usual, ours = warnings.formatwarning, str(Path(__file__).parents[1])

    def format_warning(message: Any, category: Any, filename: str, *arguments: Any, **options: Any) -> str:
        is_ours = filename.startswith(ours)
        return _warning(str(message)) if is_ours else usual(message, category, filename, *arguments, **options)

    warnings.formatwarning = format_warning
    try:
        yield
    finally:
        warnings.formatwarning = usual


@contextlib.contextmanager
def quiet_stdout(quiet: bool) -> Iterator[None]:
    """If ``quiet``, redirect standard output to standard error, also for native code of environments."""
    if not quiet:
        yield
        return
    with redirected(1, 2), contextlib.redirect_stdout(sys.stderr):
        yield


def _warning(message: str) -> str:
    return f"{printable(f'warning: {message}')}\n"


def print_warnings(messages: Iterable[str]) -> None:
    """Print one line for each warning to standard error."""
    for message in messages:
        print(_warning(message), end="", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print ``value`` as one line of strict JSON."""
    from proximo.serialization import jsonable

    print(json.dumps(jsonable(value), allow_nan=False))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose columns are two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def paint(text: str, color: str, stream: TextIO | None = None) -> str:
    """``text`` in ``color`` if ``stream``, by default standard output, is a terminal. The variables ``NO_COLOR`` and
    ``FORCE_COLOR`` turn colors off, and on elsewhere (https://no-color.org, https://force-color.org)."""
    is_terminal = (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"
    if os.environ.get("NO_COLOR") or not (is_terminal or os.environ.get("FORCE_COLOR")):
        return text
    return f"\x1b[{_COLORS[color]}m{text}\x1b[0m"
