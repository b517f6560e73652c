"""Write the tables of settings into the pages: ours from the schema, those of other libraries from ``src/proximo/other_libraries/data``.

    python docs/tables.py

A table stands between ``<!-- table: cleanrl, Arguments -->`` and ``<!-- end -->``, with a file of the folder and one of its sections. Those of
docs/settings.md stand between ``<!-- settings -->``, ``<!-- kinds -->`` or ``<!-- foreign names -->`` and ``<!-- end -->``, that of docs/zoo.md between
``<!-- zoo -->`` and ``<!-- end -->``.
``tests/docs`` compares the tables with the files.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path

from proximo.config import GROUPS, GYMNASIUM_ONLY, LEAVES, presets, text_of
from proximo.config.coercion import Leaf, ScheduleText
from proximo.other_libraries import Entry, libraries, load
from proximo.storage import run_directory, zoo

CUSTOM_CODE = {
    "objective": "custom-losses.md",
    "extra_loss": "custom-losses.md",
    "optimizer": "variants.md#optimizers-and-schedules",
    "critic_optimizer": "variants.md#optimizers-and-schedules",
}
"""The page on custom code for a setting, if it is not that on custom networks."""

BASES = {
    int: "integer", float: "number", bool: "`true`, `false`", str: "text", ScheduleText: "number or schedule",
    tuple[int, ...]: "integers, such as `64,64`", tuple[str, ...]: "names, separated by commas", dict[str, typing.Any]: "`key=value,…`",
}  # fmt: skip
"""The values of each type of settings."""
SAME = "the same name"
"""The cell of names that have the same meaning in both libraries."""
MARK = re.compile(r"^(<!-- table: (\w+), ([^\n]+?) -->\n).*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)


def with_tables(text: str) -> str:
    """The text of a page with its tables as the files have them now."""
    text = MARK.sub(lambda match: f"{match[1]}\n{table(match[2], match[3])}\n\n{match[4]}", text)
    marks = {"settings": _groups, "kinds": _kinds, "foreign names": _foreign, "zoo": _zoo}
    for mark, lines in ((f"<!-- {name} -->", lines) for name, lines in marks.items()):
        text = re.sub(
            f"^{mark}\n.*?^<!-- end -->$",
            lambda _, m=mark, of=lines: "\n".join([m, *of(), "\n<!-- end -->"]),
            text,
            flags=re.M | re.S,
        )
    return text


def table(library: str, section: str) -> str:
    """The table of one section. Names with equal cells share a row."""
    content, rows = load(library), dict[tuple[str, str], list[str]]()
    for entry in content.sections[section].values():
        default = f" ({_plain(entry.default)})" if entry.default is not None else ""
        rows.setdefault((_ours(entry), entry.note), []).append(f"`{entry.name}`{default}")
    lines = [f"| {', '.join(names)} | {ours} | {note} |" for (ours, note), names in rows.items()]
    return "\n".join([f"| {content.name} | proximo | What differs |", "|---|---|---|", *lines])


def _ours(entry: Entry) -> str:
    if entry.ours == (entry.name,) and not entry.note:
        return SAME
    return ", ".join(f"`{name}`" if name != "id" else "the environment" for name in entry.ours)


def _groups() -> Iterator[str]:
    for group, cls in GROUPS.items():
        yield f"\n## {group}\n\n{inspect.getdoc(cls)}\n"
        yield "| Setting | Default | Values | Meaning |\n|---|---|---|---|"
        for leaf in LEAVES.values():
            if leaf.group == group:
                host = " *Gymnasium environments only.*" if leaf.name in GYMNASIUM_ONLY else ""
                for row in (leaf, *leaf.entries):
                    place = "" if "." in row.name else f'<span id="{row.name}"></span>'
                    yield f"| {place}`{row.name}` | {_default(row)} | {_takes(row)} | {_escaped(row.help)}.{host} |"


def _kinds() -> Iterator[str]:
    yield "\n| Kind | Settings |\n|---|---|"
    for kind, words in presets.KINDS.items():
        groups = (group for group in presets.load_kind(kind).values() if isinstance(group, dict))
        pairs = (f"`{name}: {text_of(value)}`" for group in groups for name, value in group.items())
        yield f"| {words} | {', '.join(pairs)} |"


def _foreign() -> Iterator[str]:
    yield "| Name | Library | proximo |\n|---|---|---|"
    entries = [entry for library in libraries() for entry in load(library).settings if entry.name not in LEAVES]
    for name in sorted({entry.name for entry in entries}, key=lambda name: (name.lower(), name)):
        meanings: dict[tuple[str, ...], list[Entry]] = {}
        for entry in entries:
            if entry.name == name:
                meanings.setdefault(entry.ours, []).append(entry)
        for ours, found in meanings.items():
            of = ", ".join(dict.fromkeys(entry.library for entry in found))
            yield f"| `{name}` | {of} | {', '.join(f'`{one}`' for one in ours) or _escaped(found[0].note)} |"


def _zoo() -> Iterator[str]:
    yield "| Command | Environment | Memory | Steps | Greedy | Sampled | Success | Size |\n|---|---|---|---|---|---|---|---|"
    for name in zoo.names():
        folder = zoo.FOLDER / name.removeprefix(zoo.PREFIX)
        config, played = run_directory.read_config(folder), json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
        memory, success = config.network.memory, played["greedy"]["success_rate"]
        greedy, sampled = (f"{s['return_mean']:,.2f} ± {s['return_std']:,.2f}" for s in (played["greedy"], played["sampled"]))
        settings = "".join(f", `{key}={value}`" for key, value in played["env_settings"].items())
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        yield (
            f"| `proximo watch {name}` | `{config.env.id}`{settings} | {'–' if memory == 'none' else f'`{memory}`'} | {played['step']:,} "
            f"| {greedy} | {sampled} | {'–' if success is None else f'{success:.0%}'} | {size / 1000:.0f} kB |"
        )


def _default(leaf: Leaf) -> str:
    if leaf.name == "id" or leaf.entries:
        return ""
    value = leaf.default
    shown = value.plain() if isinstance(value, ScheduleText) else ",".join(map(str, value)) if isinstance(value, tuple) else value
    if isinstance(shown, bool):
        shown = str(shown).lower()
    return "empty" if shown in ("", {}) else f"`{shown:,}`" if isinstance(shown, int) and shown > 9999 else f"`{shown}`"


def _takes(leaf: Leaf) -> str:
    words = [f"`{word}`" for word in leaf.words]
    if leaf.base is None:
        custom = [f"[custom code]({CUSTOM_CODE.get(leaf.name, 'custom-networks.md')})"] if leaf.takes_custom else []
        return ", ".join([*words, *custom])
    if leaf.base is bool:
        return ", ".join([*words, BASES[bool]])
    return ", or ".join([BASES[leaf.base] + (_range(leaf) if leaf.base not in (str, tuple[str, ...]) else ""), *words])


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
