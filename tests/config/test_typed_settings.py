"""The types of the settings for editors are those of the schema. Run this file as a program to write them anew."""

import importlib.util
import subprocess
import sys
import typing
from dataclasses import replace
from pathlib import Path

import pytest

import proximo.config
from proximo.config import LEAVES
from proximo.config.coercion import SCHEDULE, BoolOrAuto, CountOrAll, Leaf, SizesOrSame
from proximo.config.custom import Custom, choices, takes_custom
from proximo.config.loading import RESUMABLE
from proximo.config.schema import RUN_DIRECTORY

PATH = Path(proximo.config.__file__).with_name("typed_settings.py")
TYPES = {
    int: "int", float: "float", bool: "bool", BoolOrAuto: "bool | Literal['auto']", str: "str", SCHEDULE: "float | str | Callable[[Any], Any]", SizesOrSame: "int | Sequence[int] | str",
    CountOrAll: "int | Literal['all']",
    tuple[int, ...]: "int | Sequence[int] | str",
    tuple[str, ...]: "Sequence[str]", dict[str, typing.Any]: "Mapping[str, Any] | str",
}  # fmt: skip
HEAD = '''"""The settings as keyword arguments, for editors and type checkers.

The file is generated from ``schema.py``: ``python tests/config/test_typed_settings.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict
'''


def annotation(leaf: Leaf) -> str:
    """The values of a setting in Python; custom code is any object."""
    if leaf.type is Custom:
        return "object"
    if leaf.type in TYPES:
        return TYPES[leaf.type]
    if words := choices(leaf.type):
        return f"Literal[{', '.join(map(repr, words))}]{' | object' if takes_custom(leaf.type) else ''}"
    return TYPES[leaf.type]


def typed_dict(name: str, base: str, about: str, leaves: list[Leaf]) -> str:
    lines = [f"class {name}({base}, total=False):", f'    """{about}"""', ""]
    for leaf in leaves:
        lines += [f"    {leaf.name}: {annotation(leaf)}", f'    """{leaf.help}."""']
    return "\n".join(lines)


def source() -> str:
    """The text of the generated file, formatted."""
    apart = (*RUN_DIRECTORY, "eval_env")  # an agent takes eval_env, which may be an object, as an argument of its own
    of_agents = [leaf for leaf in LEAVES.values() if leaf.name not in ("id", *apart)]
    objects = {name: replace(leaf, type=Custom) for name, leaf in LEAVES.items() if takes_custom(leaf.type)}
    repeated = {*RESUMABLE, *objects, "eval_env"}
    again = [objects.get(name, leaf) for name, leaf in LEAVES.items() if name in repeated]
    parts = [
        HEAD,
        typed_dict("AgentSettings", "TypedDict", "Settings of an agent: all but those of run directories.", of_agents),
        typed_dict("Settings", "AgentSettings", "Settings of a training.", [LEAVES[name] for name in apart]),
        typed_dict(
            "ResumeSettings",
            "TypedDict",
            "Settings that a resumed run may change, and custom code, which may be passed again.",
            again,
        ),
    ]
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(PATH), "-"]
    return subprocess.run(command, input="\n\n".join(parts), capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff formats the file; the extra dev has it")
def test_typed_settings_are_those_of_the_schema():
    assert PATH.read_text() == source(), "run `python tests/config/test_typed_settings.py`"


if __name__ == "__main__":
    PATH.write_text(source())
