"""Names that other libraries use for our settings, classes and commands.

Messages, ``proximo convert`` and the pages for users of other libraries are made from the files in ``data``:

- ``library``: the name in messages; ``source``: what the names were taken from.
- ``settings``: sections with entries; see ``Entry``. ``includes``: another file, whose settings this library has too.
- ``names``, ``flags``, ``run_flags``: entries for what people import from the package, for flags of commands, and for
  flags of commands that take a run. ``verbs``: commands of other programs, and our command for each.
- ``always``: our settings that the code of the library has fixed. ``variants``: scripts or classes, with their own
  ``always`` and ``defaults``. ``programs``: scripts that start the library, if they are not its variants. The variant
  is then the first one whose ``where`` matches: it has a pattern for the value of each of its settings.
- ``arguments``: default arguments of wrappers and optimizers.

An entry is ``theirs: ours``, ``theirs: {ours: …, note: …, …}``, or ``theirs: {see: name}`` for the setting of this
name in ``general.yaml``. Names with the same entry may share a line: ``a, b: ours``.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

GENERAL = "general"
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Entry:
    """One name of another library."""

    library: str
    name: str
    ours: tuple[str, ...] = ()
    """The settings that replace it; none if it has no equal."""
    note: str = ""
    """What differs, or what to do instead. Code is in backticks."""
    default: Any = None
    """The value that the library takes if the setting is not given; None if it is not known."""
    times: float = 1.0
    """The factor from their value to ours."""
    values: Mapping[Any, Any] | None = None
    """Our value for each of theirs."""
    convert: str = ""
    """Its rule in ``convert.values``; ``nested``: it has settings; empty: ``values`` and ``times``."""

    @property
    def text(self) -> str:
        """The note for a message: backticks only around commands."""
        return re.sub(r"`([^` ]+|[a-z_]+=[^`]*)`", r"\1", self.note)


class Library:
    """The content of one file."""

    def __init__(self, file: str):
        from proximo.serialization import read_yaml  # only now: most commands need no other library

        content = read_yaml((DATA / f"{file}.yaml").read_bytes())
        self.name: str = content["library"]
        self.sections = {title: self._entries(_each(table), "ours") for title, table in content["settings"].items()}
        self.names, self.flags, self.run_flags = (
            self._entries(_each(content.get(kind, {})), "note") for kind in ("names", "flags", "run_flags")
        )
        self.verbs: dict[str, str] = _each(content.get("verbs", {}))
        self.always: dict[str, Any] = content.get("always", {})
        self.arguments: dict[str, dict[str, Any]] = content.get("arguments", {})
        self.variants: dict[str, dict[str, Any]] = content.get("variants", {})
        self.programs: list[str] = content.get("programs", [*self.variants])
        self.settings = [entry for entries in self.sections.values() for entry in entries.values()]
        included = load(content["includes"]).by_name if "includes" in content else {}
        self.by_name: dict[str, Entry] = {**included, **{entry.name: entry for entry in self.settings}}

    def _entries(self, table: Mapping[str, Any], text: str) -> dict[str, Entry]:
        """The entries of a table in which a plain value is the ``text``."""
        found = {}
        for theirs, value in table.items():
            fields = dict(value) if isinstance(value, Mapping) else {text: value}
            if see := fields.pop("see", ""):
                found[theirs] = replace(load(GENERAL).by_name[see], library=self.name, name=theirs)
                continue
            ours = fields.pop("ours", ())
            found[theirs] = Entry(self.name, theirs, (ours,) if isinstance(ours, str) else tuple(ours), **fields)
        return found


load = functools.cache(Library)


@functools.cache
def libraries() -> list[str]:
    """The names of the files, ``general`` last."""
    return sorted((file.stem for file in DATA.glob("*.yaml")), key=lambda name: (name == GENERAL, name))


def answer(name: str) -> str | None:
    """The end of a message: what replaces the setting ``name`` of other libraries; None if none has it."""
    found = [entry for library in libraries() for entry in load(library).settings if _plain(entry.name) == _plain(name)]
    meanings = dict[str, list[str]]()
    if name == "id" or (found and all(entry.ours == ("id",) for entry in found)):
        return "give the environment without a flag, as in `proximo train CartPole-v1`; in a file it is `env: {id: ...}`."
    for entry in found:
        meanings.setdefault(_meaning(name, entry), []).append(entry.library)
    if len(meanings) > 1:
        return " ".join(f"In {' and '.join(dict.fromkeys(of))}, {meaning}." for meaning, of in meanings.items())
    return next((f"{meaning}." for meaning in meanings), None)


def _meaning(name: str, entry: Entry) -> str:
    ours, note = entry.ours, entry.text
    if not ours or note.startswith(f"use {ours[0]}"):
        return note
    setting, _, part = ours[0].partition(".")
    start = f"{name} is the entry {part} of {setting} here" if part else f"{name} is called {setting} here"
    start = f"use {' and '.join(ours)} instead of {name}" if len(ours) > 1 else start
    return ": ".join(filter(None, (start, note)))


def answer_name(name: str) -> str | None:
    """What to use instead of a public name of another library; None if none has it."""
    return next((load(library).names[name].text for library in libraries() if name in load(library).names), None)


def answer_flags(unknown: Iterable[str], known: Collection[str], takes_run: bool) -> str:
    """Sentences about the ``unknown`` flags of a command, whose flags are ``known``. ``takes_run``: whether it takes a run."""
    general = load(GENERAL)
    answers = {**general.flags, **(general.run_flags if takes_run else {})}
    found = {flag: answers[_plain(flag)].text for flag in unknown if _plain(flag) in answers}
    return "".join(f" --{flag}: {text}." for flag, text in found.items() if set(re.findall("--[a-z-]+", text)) <= set(known))


def _each(table: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each name in ``a, b: value``."""
    return {name: value for names, value in table.items() for name in names.split(", ")}


def _plain(name: str) -> str:
    """Without dashes and capitals: flags have dashes, PureJaxRL's keys are in capitals."""
    return name.replace("-", "_").lower()
