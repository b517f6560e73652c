"""The types of the settings for editors are those of the schema. Run this file as a program to write them anew."""

import textwrap
import typing
from pathlib import Path

import proximo.config
from proximo.config import LEAVES
from proximo.config.coercion import SCHEDULE, BoolOrAuto, CountOrAll, Leaf, SizesOrSame
from proximo.config.custom import choices, takes_custom
from proximo.config.loading import RESUMABLE
from proximo.config.schema import RUN_DIRECTORY, Activation

PATH = Path(proximo.config.__file__).with_name("typed_settings.py")
TYPES = {
    int: "int", float: "float", bool: "bool", BoolOrAuto: "bool | Literal['auto']", str: "str",
    SCHEDULE: "float | str | Callable[[Any], Any]", Activation: "Activation", SizesOrSame: "int | Sequence[int] | str",
    CountOrAll: "int | Literal['all']", tuple[int, ...]: "int | Sequence[int] | str", tuple[str, ...]: "Sequence[str]",
    dict[str, typing.Any]: "Mapping[str, Any] | str",
}  # fmt: skip
HEAD = '''# ruff: noqa: UP013 (in this form, several stand on a line)
"""The settings as keyword arguments, for editors and type checkers.

The file is generated from ``schema.py``: ``python tests/config/test_typed_settings.py``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from proximo.config.schema import Activation

'''
APART = {*RUN_DIRECTORY, "eval_env"}
"""An agent takes ``eval_env``, which may be an object, as an argument of its own."""
CLASSES = '''

class AgentSettings(ResumeAgentSettings, _AgentSettings, total=False):
    """Settings of an agent: all except settings of run directories."""


class Settings(AgentSettings, _ResumeRunSettings, _RunSettings, total=False):
    """Settings of a training."""


class ResumeSettings(ResumeAgentSettings, _ResumeRunSettings, total=False):
    """Settings of a training that a resume may change, and custom code, which may be passed again."""
'''


def annotation(leaf: Leaf) -> str:
    """The values of a setting in Python; custom code is any object."""
    if leaf.entries:
        return "Mapping[str, Any] | str"
    if leaf.type in TYPES:
        return TYPES[leaf.type]
    return f"Literal[{', '.join(map(repr, choices(leaf.type)))}]{' | object' if takes_custom(leaf.type) else ''}"


def typed_dict(name: str, names: set[str]) -> str:
    entries = [f'"{leaf.name}": "{annotation(leaf)}",' for leaf in LEAVES.values() if leaf.name in names]
    lines = textwrap.wrap(" ".join(x.replace(" ", "\0") for x in entries), 105, break_long_words=False, break_on_hyphens=False)
    rows = "\n".join(f"    {line}" for line in lines).replace("\0", " ")
    return f'{name} = TypedDict("{name}", {{\n{rows}\n}}, total=False)  # fmt: skip\n'


def source() -> str:
    """The text of the generated file."""
    resumable = {*RESUMABLE, "eval_env", *(name for name, leaf in LEAVES.items() if takes_custom(leaf.type))}
    of_agents = LEAVES.keys() - APART - {"id"}
    tables = {
        "ResumeAgentSettings": of_agents & resumable, "_AgentSettings": of_agents - resumable,
        "_ResumeRunSettings": APART & resumable, "_RunSettings": APART - resumable,
    }  # fmt: skip
    return HEAD + "".join(typed_dict(name, names) for name, names in tables.items()) + CLASSES


def test_typed_settings_are_those_of_the_schema():
    assert PATH.read_text() == source(), "run `python tests/config/test_typed_settings.py`"


if __name__ == "__main__":
    PATH.write_text(source())
