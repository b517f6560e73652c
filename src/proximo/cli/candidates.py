"""What a shell is offered at the cursor. It follows from the verbs' own parsers, and waits for no library."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from proximo.cli import VERBS, first_clause
from proximo.errors import is_plain
from proximo.runtime import cache_folder

Candidate = tuple[str, str]
"""A word, and what it means."""
FILES = ":files"
"""In place of candidates: the names of files, which the shell knows best."""
KNOWN_ENVIRONMENTS = "environments.txt"


def run(arguments: list[str]) -> int:
    """``SHELL [BREAKS] WORDS…``, the last one being what is completed: print a line for each candidate. For bash, which hands over
    the line as it is and the characters that end a word to it."""
    shell, *words = arguments
    breaks = ""
    if shell == "bash":
        breaks, line = words
        words = split(line)[1:]
    current = words[-1] if words else ""
    # What stands before the last break stays as it is; @ is one that bash leaves to the word behind it.
    start = max((current.rfind(character) + (character != "@") for character in breaks if character in current), default=0)
    for word, meaning in candidates(words[:-1], current):
        if shell == "bash" and not re.fullmatch(r"[\w@%+=:,./-]*", word):
            continue  # bash would insert it without quotation marks
        print(word if word == FILES else word[start:] if shell == "bash" else f"{word}\t{meaning}".rstrip("\t"))
    return 0


def split(line: str) -> list[str]:
    """The words of a command line that is being typed; the last one is empty behind a space."""
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return words if words and (closing or not line[-1:].isspace()) else [*words, ""]
    return line.split(" ")


def candidates(before: list[str], current: str) -> list[Candidate]:
    """What may stand in place of ``current`` behind the words ``before`` (without the program's name)."""
    if not before:
        flags = [("--help", "explain"), ("--version", "print the version")]
        return _fitting(flags if current.startswith("-") else VERBS.items(), current)
    parser = _parser(before[0])
    if parser is None:
        return []
    flag, equals, _ = current.partition("=")
    if current.startswith("--") and equals:
        action = parser._option_string_actions.get(flag)
        offered = [] if action is None else [(f"{flag}={word}", m) for word, m in _values(action, before, current)]
        return _fitting((c for c in offered if FILES not in c[0]), current)
    awaiting, positional = _state(parser, before[1:])
    if current.startswith("-") and (awaiting is None or awaiting.nargs == "?"):
        return _fitting(_flags(parser, hidden=current.startswith("--no-")), current)
    action = awaiting or positional
    if action is None:
        return []
    found = _values(action, before, current)
    fitting = _fitting(found, current)
    return fitting or ([(FILES, "")] if current and _is_run(action) else [])


def _parser(verb: str) -> argparse.ArgumentParser | None:
    """A verb's parser, which its file gives as ``make_parser()``."""
    if verb not in VERBS:
        return None
    make = getattr(importlib.import_module(f"proximo.cli.{verb}"), "make_parser", None)
    return None if make is None else make()


def _state(parser: argparse.ArgumentParser, words: list[str]) -> tuple[argparse.Action | None, argparse.Action | None]:
    """(the flag that waits for its value, the positional argument that comes next) behind ``words``."""
    positionals = [a for a in parser._actions if not a.option_strings]
    given, awaiting = 0, None
    for word in words:
        if awaiting is not None and not (word.startswith("-") and awaiting.nargs == "?"):
            # A flag whose value may be left out takes the next word only where it fits.
            took = awaiting.nargs != "?" or word in _words(awaiting)
            awaiting = None
            if took:
                continue
        if word.startswith("-") and len(word) > 1:
            action = parser._option_string_actions.get(word)
            awaiting = action if action is not None and action.nargs != 0 else None
        else:
            given += 1
    several = bool(positionals) and positionals[-1].nargs in ("+", "*")
    place = min(given, len(positionals) - 1) if several else given
    return awaiting, positionals[place] if place < len(positionals) else None


def _flags(parser: argparse.ArgumentParser, hidden: bool) -> list[Candidate]:
    """All flags in their long form; the ``hidden`` ones too, which are ``--no-…`` and spellings with underscores."""
    return [
        (flag, "" if action.help in (None, argparse.SUPPRESS) else first_clause(action.help.replace("%%", "%"), ";\n"))
        for action in parser._actions
        for flag in action.option_strings
        if flag.startswith("--") and (action.help != argparse.SUPPRESS or (hidden and "_" not in flag))
    ]


def _words(action: argparse.Action) -> list[str]:
    """The values that an argument is limited to: its choices, or as ``a|b`` in its name."""
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    parts = action.metavar.removesuffix("|MODULE:NAME").split("|") if isinstance(action.metavar, str) else []
    own = isinstance(action.metavar, str) and action.metavar.endswith("|MODULE:NAME")
    return parts if (len(parts) > 1 or own) and all(re.fullmatch(r"[a-z0-9_.]+", part) for part in parts) else []


def _is_run(action: argparse.Action) -> bool:
    return isinstance(action.metavar, str) and action.metavar.startswith("RUN")


def _values(action: argparse.Action, before: list[str], current: str) -> list[Candidate]:
    if _is_run(action):
        return _runs(Path(_given(before, "--runs-dir") or "runs"), current)
    if action.metavar == "STUDY":
        return _studies(Path(_given(before, "--tune-dir") or "tune"), current)
    if action.metavar == "ENV":
        return [(name, "") for name in environments()]
    if action.type is Path or action.metavar in ("FILE", "FOLDER", "PATH"):
        return [(FILES, "")]
    return [(word, "") for word in _words(action)]


def _given(before: list[str], flag: str) -> str | None:
    """The value of a flag on the line so far."""
    for i, word in enumerate(before):
        if word == flag and i + 1 < len(before):
            return before[i + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def environments() -> list[str]:
    """The ids that ``proximo envs`` has listed here last, and those with a preset: to ask the libraries takes seconds."""
    from proximo import presets

    try:
        listed = (cache_folder() / KNOWN_ENVIRONMENTS).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        listed = []
    return sorted({*listed, *presets.names()})


def remember(ids: Iterable[str]) -> None:
    """Keep the ids for ``environments``; without a word where that cannot be."""
    path = cache_folder() / KNOWN_ENVIRONMENTS
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(ids) + "\n", encoding="utf-8")
    except OSError:
        return


def _runs(runs_dir: Path, current: str) -> list[Candidate]:
    """Runs by the names that the verbs take; behind an ``@``, the checkpoints of the one before it."""
    found = [
        path
        for path in runs_dir.glob("*/[!.]*")
        if is_plain(str(path)) and ((path / "config.yaml").is_file() or any(path.glob("seed-*")))
    ]
    name, at, _ = current.rpartition("@")
    if at:
        places = [path for path in found if name in _names(path, runs_dir, found)] or [Path(name)]
        steps = sorted((int(p.name) for p in places[0].glob("checkpoints/[0-9]*") if p.name.isdigit()), reverse=True)
        return [(f"{name}@{which}", "a checkpoint") for which in ("best", "last", *steps)]
    names = [(name, "a run") for path in found for name in _names(path, runs_dir, found)[: None if current else 1]]
    return [("last", "the run that was started last"), *names] if found else []


def _studies(tune_dir: Path, current: str) -> list[Candidate]:
    """Studies by the names that `proximo tune --resume` takes."""
    found = [path for path in tune_dir.glob("*/[!.]*") if is_plain(str(path)) and (path / "study.yaml").is_file()]
    names = [(name, "a study") for path in found for name in _names(path, tune_dir, found)[: None if current else 1]]
    return [("last", "the study that was worked on last"), *names] if found else []


def _names(path: Path, runs_dir: Path, found: list[Path]) -> list[str]:
    """What a run may be called: its name where no other has it, environment and name, its path."""
    alone = [path.name] if sum(other.name == path.name for other in found) == 1 else []
    return [*alone, f"{path.parent.name}/{path.name}", str(path)]


def _fitting(offered: Iterable[Candidate], current: str) -> list[Candidate]:
    return [(word, meaning) for word, meaning in offered if word.startswith(current) or word == FILES]
