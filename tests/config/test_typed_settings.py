"""The types of the settings for editors are those of the schema. Run this file to write them anew."""

import importlib.util
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import proximo.config
from proximo.config import LEAVES
from proximo.config.coercion import Leaf, ScheduleText
from proximo.config.loading import RESUMABLE
from proximo.config.schema import RUN_DIRECTORY, Activation

PATH = Path(proximo.config.__file__).with_name("typed_settings.py")
TYPES = {
    int: "int", float: "float", bool: "bool", str: "str", ScheduleText: "float | str | Callable[[Any], Any]",
    tuple[int, ...]: "int | Sequence[int] | str", tuple[str, ...]: "Sequence[str]", dict[str, typing.Any]: "Mapping[str, Any] | str",
}  # fmt: skip
HEAD = PATH.read_text().partition("\n\nclass ")[0]
APART = {*RUN_DIRECTORY, "eval_env"}
"""An agent takes ``eval_env``, which may be an object, as an argument of its own."""


def annotation(leaf: Leaf) -> str:
    """The values of a setting in Python; custom code is any object."""
    if leaf.type == Activation:
        return "Activation"
    base = [TYPES[leaf.base]] if leaf.base else []
    words = [f"Literal[{', '.join(map(repr, leaf.words))}]"] if leaf.words and "str" not in "".join(base) else []
    return " | ".join([*base, *words, *(["object"] if leaf.takes_custom and not base else [])])


def typed_dict(name: str, bases: str, about: str, names: set[str]) -> str:
    fields = [f"    {leaf.name}: {annotation(leaf)}" for leaf in LEAVES.values() if leaf.name in names]
    return "\n".join([f"class {name}({bases}, total=False):", f'    """{about}"""', "", *fields])


def source() -> str:
    """The text of the generated file, formatted."""
    resumable = {*RESUMABLE, "eval_env", *(name for name, leaf in LEAVES.items() if leaf.takes_custom)}
    of_agents = LEAVES.keys() - APART - {"id"}
    both, of_runs = "ResumeAgentSettings", "ResumeRunSettings"
    about = "Settings of {} that a resume may change, and custom code, which may be passed again."
    parts = [
        HEAD,
        typed_dict(both, "TypedDict", about.format("an agent"), of_agents & resumable),
        typed_dict(of_runs, "TypedDict", "Settings of run directories that a resume may change.", APART & resumable),
        typed_dict("AgentSettings", both, "Settings of an agent: all except settings of run directories.", of_agents - resumable),
        typed_dict("Settings", f"AgentSettings, {of_runs}", "Settings of a training.", APART - resumable),
        typed_dict("ResumeSettings", f"{both}, {of_runs}", about.format("a training"), set()),
    ]
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(PATH), "-"]
    return subprocess.run(command, input="\n\n".join(parts), capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff formats the file; the extra dev has it")
def test_typed_settings_are_those_of_the_schema():
    assert PATH.read_text() == source(), "run `python tests/config/test_typed_settings.py`"


if __name__ == "__main__":
    PATH.write_text(source())
