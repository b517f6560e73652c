"""Sentences that answer a name of another library. Each is the end of an error message."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from proximo.other_libraries.library import GENERAL, Entry, libraries, load


def answer(name: str) -> str | None:
    """What replaces a setting ``name`` of another library, with each meaning that the name has; None if no library has it."""
    meanings: dict[tuple[str, ...], list[Entry]] = {}
    for entry in _found(name):
        meanings.setdefault(entry.ours, []).append(entry)
    sentences = [_meaning(name, entries) for entries in meanings.values()]
    if len(sentences) > 1:
        sentences = [f"In {_of(entries)}, {sentence}" for sentence, entries in zip(sentences, meanings.values(), strict=True)]
    return " ".join(sentences) or None


def is_environment(name: str) -> bool:
    """Whether ``name`` is what other libraries call the environment, and nothing else."""
    found = _found(name)
    return bool(found) and all(entry.ours == ("id",) for entry in found)


def answer_call(given: Iterable[Any], unknown: Iterable[str]) -> str:
    """Sentences to append to an error about a call: ``given`` are all values, ``unknown`` the names of unknown arguments."""
    policies = [value for value in given if isinstance(value, str) and value.endswith("Policy")]
    if policies:
        policy = load("stable_baselines3").names["MlpPolicy"]
        return f" The environment is the first argument, without {policies[0]!r}: {_text(policy)}."
    tables = [load(library).arguments for library in libraries()]
    sentences = []
    for name in unknown:
        if entry := next((table[name] for table in tables if name in table), None):
            sentences.append(f" {name} is called {entry.ours[0]} here." if entry.ours else f" {name}: {_text(entry)}.")
        elif (found := _found(name)) and not any(entry.ours for entry in found):
            sentences.append(f" {name}: {answer(name)}")
    return "".join(sentences)


def answer_name(name: str) -> str | None:
    """What to use instead of a public name of another library, or an earlier one of ours; None if no library has it."""
    return next((_text(load(library).names[name]) for library in libraries() if name in load(library).names), None)


def answer_attribute(name: str) -> str | None:
    """What to use instead of an attribute of another library's agent; None if no library has it."""
    found = (load(library).attributes for library in libraries())
    return next((_text(attributes[name]) for attributes in found if name in attributes), None)


def answer_verb(name: str) -> str | None:
    """The command that does what ``name`` does in another program; None if there is none."""
    return load(GENERAL).verbs.get(name)


def answer_flags(unknown: Iterable[str], known: Collection[str], takes_run: bool) -> str:
    """Sentences to append to an error about ``unknown`` flags of a command with the flags ``known``, which may take a run."""
    general = load(GENERAL)
    answers = {**general.flags, **(general.run_flags if takes_run else {})}
    found = {flag: _text(answers[_plain(flag)]) for flag in unknown if _plain(flag) in answers}
    return "".join(f" --{flag}: {text}." for flag, text in found.items() if set(re.findall("--[a-z-]+", text)) <= set(known))


def _plain(name: str) -> str:
    """Without dashes and capitals: flags have dashes, PureJaxRL's keys are in capitals."""
    return name.replace("-", "_").lower()


def _found(name: str) -> list[Entry]:
    return [entry for library in libraries() for entry in load(library).settings() if _plain(entry.name) == _plain(name)]


def _meaning(name: str, entries: list[Entry]) -> str:
    """What replaces ``name``, which all ``entries`` replace by the same settings, and their notes, with the libraries of each if they
    differ."""
    notes: dict[str, list[Entry]] = {}
    for entry in entries:
        if note := _text(entry):
            notes.setdefault(note, []).append(entry)
    ours = entries[0].ours
    start = (
        f"{name} is called {ours[0]} here" if len(ours) == 1 else f"use {' and '.join(ours)} instead of {name}" if ours else ""
    )
    if len(notes) > 1:
        details = " ".join(f"In {_of(of)}, {note}." for note, of in notes.items())
        return f"{start}. {details}" if start else details
    note = next(iter(notes), "")
    if ours and note.startswith(f"use {ours[0]}"):
        return f"{note}."
    return f"{': '.join(filter(None, (start, note)))}."


def _of(entries: Iterable[Entry]) -> str:
    names = list(dict.fromkeys(entry.library for entry in entries))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _text(entry: Entry) -> str:
    """The note for a message: backticks only around commands."""
    return re.sub(r"`([^` ]+|[a-z_]+=[^`]*)`", r"\1", entry.note)
