"""The page of all settings, from the dataclasses that define them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from proximo.config import GROUPS, GYMNASIUM_ONLY, LEAVES
from proximo.config.coercion import Leaf
from proximo.config.custom import choices, takes_custom
from proximo.config.schedule_text import ScheduleText
from proximo.other_libraries import Entry, libraries, load


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the marks by the tables."""
    if page.file.src_uri != "settings.md":
        return markdown
    return markdown.replace("<!-- settings -->", "\n".join(_groups())).replace("<!-- foreign names -->", "\n".join(_foreign()))


def _groups() -> Iterator[str]:
    for group, cls in GROUPS.items():
        yield f"\n## {group}\n\n{inspect.getdoc(cls)}\n"
        yield "| Setting | Default | Values | Meaning |\n|---|---|---|---|"
        for leaf in LEAVES.values():
            if leaf.group == group:
                host = " *Gymnasium environments only.*" if leaf.name in GYMNASIUM_ONLY else ""
                yield f'| <span id="{leaf.name}"></span>`{leaf.name}` | {_default(leaf)} | {_takes(leaf)} | {_escaped(leaf.help)}.{host} |'


def _foreign() -> Iterator[str]:
    yield "| Name | Library | proximo |\n|---|---|---|"
    entries = [entry for library in libraries() for entry in load(library).settings() if entry.name not in LEAVES]
    for name in sorted({entry.name for entry in entries}, key=str.lower):
        meanings: dict[tuple[str, ...], list[Entry]] = {}
        for entry in entries:
            if entry.name == name:
                meanings.setdefault(entry.ours, []).append(entry)
        for ours, found in meanings.items():
            of = ", ".join(dict.fromkeys(entry.library for entry in found))
            yield f"| `{name}` | {of} | {', '.join(f'`{one}`' for one in ours) or _escaped(found[0].note)} |"


def _default(leaf: Leaf) -> str:
    if leaf.name == "id":
        return ""
    value = leaf.default
    shown = value.plain() if isinstance(value, ScheduleText) else ",".join(map(str, value)) if isinstance(value, tuple) else value
    if isinstance(shown, bool):
        shown = str(shown).lower()
    return "empty" if shown in ("", {}) else f"`{shown:,}`" if isinstance(shown, int) and shown > 9999 else f"`{shown}`"


def _takes(leaf: Leaf) -> str:
    if words := choices(leaf.type):
        custom = [" [custom code](custom-networks.md)"] if takes_custom(leaf.type) else []
        return ", ".join([*(f"`{word}`" for word in words), *custom])
    if leaf.type is bool:
        return "`true`, `false`"
    if leaf.type is str:
        return "text"
    if leaf.type is int or leaf.type is float:
        return f"{'integer' if leaf.type is int else 'number'}{_range(leaf)}"
    if leaf.type is ScheduleText:
        return f"number or schedule{_range(leaf)}"
    if leaf.type == tuple[str, ...]:
        return "names, separated by commas"
    return f"integers, such as `64,64`{_range(leaf)}" if typing.get_origin(leaf.type) is tuple else "`key=value,…`"


def _range(leaf: Leaf) -> str:
    if leaf.above is not None:
        return f", more than {leaf.above:g}"
    low, high = (
        None if end is None else f"{end:,}" if isinstance(end, int) and end < 10**5 else f"{end:g}"
        for end in (leaf.low, leaf.high)
    )
    if high is None or float(high.replace(",", "")) >= 10**6:
        return "" if low is None else f", {low} or more"
    return f", {low} … {high}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
