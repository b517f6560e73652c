"""Write the tables of other libraries' settings into the pages, from ``src/proximo/other_libraries/data``.

    python docs/tables.py

A table stands between ``<!-- table: cleanrl, Arguments -->`` and ``<!-- end -->``, with a file of the folder and one of its sections.
``tests/docs`` compares the tables with the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from proximo.other_libraries import Entry, load

MARK = re.compile(r"^(<!-- table: (\w+), ([^\n]+?) -->\n).*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)


def with_tables(text: str) -> str:
    """The text of a page with its tables as the files have them now."""
    return MARK.sub(lambda match: f"{match[1]}\n{table(match[2], match[3])}\n\n{match[4]}", text)


def table(library: str, section: str) -> str:
    """The table of one section."""
    content = load(library)
    return "\n".join(
        [f"| {content.name} | proximo | What differs |", "|---|---|---|", *map(_row, content.sections[section].values())]
    )


def _row(entry: Entry) -> str:
    default = f" ({_plain(entry.default)})" if entry.default is not None else ""
    ours = ", ".join(f"`{name}`" if name != "id" else "the environment" for name in entry.ours)
    return f"| `{entry.name}`{default} | {ours} | {entry.note} |"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pages() -> Iterator[Path]:
    return Path(__file__).parent.glob("*.md")


if __name__ == "__main__":
    for page in _pages():
        before = page.read_text(encoding="utf-8")
        after = with_tables(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"wrote {page.name}")
