"""YAML and JSON that may come from a stranger: read within limits, so that no file costs minutes or ends in a RecursionError."""

from __future__ import annotations

import json
from typing import Any

import yaml

from proximo.errors import shown

MAX_YAML = 200_000
"""Characters of a YAML file: settings take five thousand, and a second reads fifty thousand."""
MAX_YAML_DEPTH = 20
MAX_YAML_BITS = 1000
MAX_JSON_DEPTH = 100
_OF_CONSTRUCTORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What PyYAML raises for a date that does not exist, a number of thousands of digits, or a tag on text that it does not fit."""


class _Loader(yaml.SafeLoader):
    """The safe loader, without aliases (a few of them grow exponentially), deep nesting, and names that are given twice."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"{_place(self.peek_event())}: aliases (*name) are not supported; write the value out")
        if self.depth == MAX_YAML_DEPTH:
            raise yaml.YAMLError(f"{_place(self.peek_event())}: nested deeper than {MAX_YAML_DEPTH} levels")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        number = super().construct_yaml_int(node)
        if number.bit_length() > MAX_YAML_BITS:  # Python does not even print a hexadecimal one of thousands of digits
            raise yaml.YAMLError(f"{shown(node.value, 'text')} is too large, expected at most {MAX_YAML_BITS} bits")
        return number

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(names)) < len(names):
            name = next(name for name in names if names.count(name) > 1)
            raise yaml.YAMLError(f"{shown(name, 'text')} is given {names.count(name)} times")
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)  # the base class has registered its own


def _place(event: Any) -> str:
    return f"line {event.start_mark.line + 1}"


class _Dumper(yaml.SafeDumper):
    """The safe dumper, which writes an object that occurs twice out twice: ``read_yaml`` takes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def read_yaml(data: bytes | str) -> Any:
    """The content of YAML. Raises ``ValueError`` for what is not valid, has aliases, or is larger or deeper than settings are."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        if len(text) > MAX_YAML:
            raise ValueError(f"it has {len(text):,} characters, expected at most {MAX_YAML:,}")
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, *_OF_CONSTRUCTORS) as error:
        raise ValueError(shown(" ".join(str(error).split()), "text", 300)) from error


def dump_yaml(content: Any, **options: Any) -> str:
    """``content`` as YAML that ``read_yaml`` reads, names in the order in which they stand."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **options)


def read_json(data: bytes | str) -> Any:
    """The content of JSON. Raises ``ValueError`` for what is not valid, or is nested deeper than ``MAX_JSON_DEPTH``."""
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_JSON_DEPTH} levels") from None
    except ValueError as error:
        raise ValueError(shown(str(error), "text", 300)) from error
    brackets = (b"[", b"{") if isinstance(data, bytes) else ("[", "{")
    if sum(map(data.count, brackets)) > MAX_JSON_DEPTH:  # pyright: ignore[reportArgumentType]
        check_depth(content)
    return content


def check_depth(content: Any) -> None:
    """Raise ``ValueError`` where lists and dictionaries are nested deeper than ``MAX_JSON_DEPTH``."""
    level = [content]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            x for parent in level for x in (parent.values() if isinstance(parent, dict) else parent) if isinstance(x, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {MAX_JSON_DEPTH} levels")
