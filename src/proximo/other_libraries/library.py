"""The files in ``data``. Their top level:

- ``library``: the name in messages; ``source``: what the names were taken from.
- ``settings``: sections with entries; see ``Entry``.
- ``includes``: another file, whose settings this library has too.
- ``arguments``, ``names``, ``attributes``, ``flags``, ``run_flags``: entries for arguments of functions, for what people import from the
  package, for attributes of the agent, for flags of commands, and for flags of commands that take a run.
- ``verbs``: commands of other programs, with ours.
- ``always``: settings of ours that the code of the library has fixed. ``variants``: scripts or classes, with their own ``always`` and
  ``defaults``. ``programs``: what its command lines start, if these are not its variants; the variant is then the first one whose ``where``
  fits: a pattern for the value of each setting in it. ``proximo convert`` reads them.

An entry is ``theirs: ours``, ``theirs: {ours: …, note: …, …}``, or ``theirs: {see: name}`` for the entry of this name in ``general.yaml``. Names
with the same entry may share a line: ``a, b: ours``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    """The function of ``proximo.convert`` that finds our value. Without it, ``values`` and ``times`` apply."""


Entries = dict[str, Entry]


@dataclass(frozen=True)
class Library:
    """The content of one file."""

    name: str
    source: str
    sections: dict[str, Entries]
    arguments: Entries
    names: Entries
    attributes: Entries
    flags: Entries
    run_flags: Entries
    verbs: dict[str, str] = field(default_factory=dict)
    always: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    includes: str = ""

    def settings(self) -> Iterator[Entry]:
        """All settings, in their order."""
        for entries in self.sections.values():
            yield from entries.values()

    def setting(self, name: str) -> Entry | None:
        """The setting of this name, here or in the library that this one includes."""
        found = next((entry for entry in self.settings() if entry.name == name), None)
        return found or (load(self.includes).setting(name) if self.includes else None)


@functools.cache
def libraries() -> list[str]:
    """The names of the files, ``general`` last."""
    names = [file.stem for file in DATA.glob("*.yaml")]
    return sorted(names, key=lambda name: (name == GENERAL, name))


@functools.cache
def load(name: str) -> Library:
    """Read the file of this name, without ``.yaml``."""
    from proximo.serialization import read_yaml  # only now: most commands need no other library

    content = read_yaml((DATA / f"{name}.yaml").read_bytes())
    library, sections = content.pop("library"), {title: _each(entries) for title, entries in content.pop("settings").items()}
    known = {theirs: value for entries in reversed(sections.values()) for theirs, value in entries.items()}
    tables = {kind: _each(content.pop(kind, {})) for kind in ("arguments", "names", "attributes", "flags", "run_flags")}
    return Library(
        name=library,
        source=content.pop("source", ""),
        verbs=_each(content.pop("verbs", {})),
        sections={title: _entries(library, entries, known, "ours") for title, entries in sections.items()},
        **{kind: _entries(library, t, {**t, **known}, "ours" if kind == "arguments" else "note") for kind, t in tables.items()},
        **content,
    )


def _each(table: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each name in ``a, b: value``."""
    return {name: value for names, value in table.items() for name in names.split(", ")}


def _entries(library: str, content: Mapping[str, Any], known: Mapping[str, Any], text: str) -> Entries:
    """The entries of one table. ``text`` is what a value without names is, and ``known`` are the entries for ``see``."""
    return {name: _entry(library, name, _followed(value, known), text) for name, value in content.items()}


def _followed(value: Any, known: Mapping[str, Any]) -> Any:
    """``value``, or what its ``see`` names in ``known`` or in ``general.yaml``."""
    while isinstance(value, Mapping) and "see" in value:
        other = value["see"]
        if known.get(other, value) is value:
            entry = next(entry for entry in load(GENERAL).settings() if entry.name == other)
            return {"ours": list(entry.ours), "note": entry.note}
        value = known[other]
    return value


def _entry(library: str, name: str, value: Any, text: str) -> Entry:
    content = value if isinstance(value, Mapping) else {text: value}
    ours = content.get("ours", [])
    return Entry(library, name, **{**content, "ours": tuple([ours] if isinstance(ours, str) else ours)})
