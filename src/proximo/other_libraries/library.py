"""The files in ``data``. Their top level:

- ``library``: the name in messages; ``source``: what the names were taken from.
- ``settings``: sections with entries; see ``Entry``.
- ``includes``: another file, whose settings this library has too.
- ``names``, ``flags``, ``run_flags``: entries for what people import from the package, for flags of commands, and for flags of commands that
  take a run. ``verbs``: commands of other programs, with ours.
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
    """Its rule in ``proximo.convert.values``; ``nested``: its content are settings. Without it, ``values`` and ``times``
    apply."""


@dataclass(frozen=True)
class Library:
    """The content of one file."""

    name: str
    source: str = ""
    sections: dict[str, dict[str, Entry]] = field(default_factory=dict)
    names: dict[str, Entry] = field(default_factory=dict)
    flags: dict[str, Entry] = field(default_factory=dict)
    run_flags: dict[str, Entry] = field(default_factory=dict)
    verbs: dict[str, str] = field(default_factory=dict)
    always: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    includes: str = ""

    def settings(self) -> Iterator[Entry]:
        """All settings, in their order."""
        for entries in self.sections.values():
            yield from entries.values()

    def all_settings(self) -> list[Entry]:
        """The settings of the library that this one includes, and its own."""
        return [*(load(self.includes).settings() if self.includes else ()), *self.settings()]

    def setting(self, name: str) -> Entry | None:
        """The setting of this name, here or in the library that this one includes."""
        return next((entry for entry in reversed(self.all_settings()) if entry.name == name), None)


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
    sections = {title: _each(entries) for title, entries in content.pop("settings").items()}
    known = {theirs: value for entries in reversed(sections.values()) for theirs, value in entries.items()}
    library = content.pop("library")

    def entries(table: Mapping[str, Any], text: str, known: Mapping[str, Any]) -> dict[str, Entry]:
        return {theirs: _entry(library, theirs, value, text, known) for theirs, value in table.items()}

    tables = {kind: _each(content.pop(kind, {})) for kind in ("names", "flags", "run_flags")}
    return Library(
        name=library,
        sections={title: entries(table, "ours", known) for title, table in sections.items()},
        verbs=_each(content.pop("verbs", {})),
        **{kind: entries(table, "note", {**table, **known}) for kind, table in tables.items()},
        **content,
    )


def _each(table: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each name in ``a, b: value``."""
    return {name: value for names, value in table.items() for name in names.split(", ")}


def _entry(library: str, name: str, value: Any, text: str, known: Mapping[str, Any]) -> Entry:
    """The entry for ``value``. ``text`` is what a plain value is, and ``known`` has the entries for ``see``."""
    while isinstance(value, Mapping) and "see" in value:
        other = value["see"]
        if known.get(other, value) is value:
            general = next(entry for entry in load(GENERAL).settings() if entry.name == other)
            return Entry(library, name, general.ours, general.note)
        value = known[other]
    content = value if isinstance(value, Mapping) else {text: value}
    ours = content.get("ours", [])
    return Entry(library, name, **{**content, "ours": tuple([ours] if isinstance(ours, str) else ours)})
