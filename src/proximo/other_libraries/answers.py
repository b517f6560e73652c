"""Sentences that answer a name of another library. Each is the end of an error message."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from proximo.other_libraries.library import GENERAL, Entry, libraries, load


def answer(name: str) -> str | None:
    """What replaces a setting ``name`` of other libraries, with each of its meanings; None if none has it."""
    meanings: dict[str, list[str]] = {}
    for entry in _found(name):
        meanings.setdefault(_meaning(name, entry), []).append(entry.library)
    if len(meanings) > 1:
        return " ".join(f"In {' and '.join(dict.fromkeys(of))}, {meaning}." for meaning, of in meanings.items())
    return next((f"{meaning}." for meaning in meanings), None)


def is_environment(name: str) -> bool:
    """Whether ``name`` is what other libraries call the environment, and nothing else."""
    found = _found(name)
    return bool(found) and all(entry.ours == ("id",) for entry in found)


def answer_name(name: str) -> str | None:
    """What to use instead of a public name of another library, or an earlier one of ours; None if none has it."""
    return next((_text(load(library).names[name]) for library in libraries() if name in load(library).names), None)


def answer_verb(name: str) -> str | None:
    """The command that does what ``name`` does in another program; None if there is none."""
    return load(GENERAL).verbs.get(name)


def answer_flags(unknown: Iterable[str], known: Collection[str], takes_run: bool) -> str:
    """Sentences for an error about ``unknown`` flags of a command with the flags ``known``, which may take a run."""
    general = load(GENERAL)
    answers = {**general.flags, **(general.run_flags if takes_run else {})}
    found = {flag: _text(answers[_plain(flag)]) for flag in unknown if _plain(flag) in answers}
    return "".join(f" --{flag}: {text}." for flag, text in found.items() if set(re.findall("--[a-z-]+", text)) <= set(known))


def _plain(name: str) -> str:
    """Without dashes and capitals: flags have dashes, PureJaxRL's keys are in capitals."""
    return name.replace("-", "_").lower()


def _found(name: str) -> list[Entry]:
    return [entry for library in libraries() for entry in load(library).settings() if _plain(entry.name) == _plain(name)]


def _meaning(name: str, entry: Entry) -> str:
    note, ours = _text(entry), entry.ours
    if ours and note.startswith(f"use {ours[0]}"):
        return note
    setting, _, part = ours[0].partition(".") if ours else ("", "", "")
    start = (
        f"{name} is called {ours[0]} here" if len(ours) == 1 else f"use {' and '.join(ours)} instead of {name}" if ours else ""
    )
    start = f"{name} is the entry {part} of {setting} here" if part else start
    return ": ".join(filter(None, (start, note)))


def _text(entry: Entry) -> str:
    """The note for a message: backticks only around commands."""
    return re.sub(r"`([^` ]+|[a-z_]+=[^`]*)`", r"\1", entry.note)
