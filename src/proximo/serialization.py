"""YAML and JSON, read so that an invalid file is one ``ValueError``."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from proximo.errors import shown

JsonObject = dict[str, Any]
"""An object as JSON stores it: values by name."""
MAX_YAML = 200_000
"""Characters in a YAML file. Settings need five thousand; fifty thousand take a second to read."""
TOO_DEEP = "it is nested too deeply"


class _Loader(yaml.SafeLoader):
    """The safe loader, in which ``10:50`` is text, and ``010`` is 10.

    Without ``aliases``, it rejects them (a few can expand exponentially). It also rejects repeated names,
    which merged mappings need to replace values.
    """

    def __init__(self, text: str, aliases: bool):
        super().__init__(text)
        self.aliases = aliases

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent) and not self.aliases:
            line = self.peek_event().start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: aliases (*name) are not supported; write the value out")
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int | str:
        if ":" in node.value:  # YAML 1.1 counts to the base 60, so that the levels 10:50 would be 650
            return node.value
        if node.value.replace("_", "").lstrip("+-").isdecimal():  # YAML 1.1 reads 010 as octal
            node.value = str(int(node.value.replace("_", "")))
        return super().construct_yaml_int(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if not self.aliases and len(set(names)) < len(names):
            name, count = Counter(names).most_common(1)[0]
            raise yaml.YAMLError(f"{shown(name, 'text')} is given {count} times")
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


class _Dumper(yaml.SafeDumper):
    """The safe dumper without aliases, which ``read_yaml`` rejects: a repeated object is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def read_yaml(data: bytes | str, aliases: bool = False) -> Any:
    """The content of YAML. Raises ``ValueError`` if it is invalid, too long or nested too deeply, and for aliases if not allowed."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        if len(text) > MAX_YAML:
            raise ValueError(f"it has {len(text):,} characters, expected at most {MAX_YAML:,}")
        return _Loader(text, aliases).get_single_data()
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    # PyYAML raises others for an impossible date, a number of thousands of digits, or a tag that does not fit.
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ValueError(shown(" ".join(str(error).split()), "text", 300)) from error


def dump_yaml(content: Any, **options: Any) -> str:
    """``content`` as YAML for ``read_yaml``, with names in their given order."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **options)


def is_storable(content: Any) -> bool:
    """Whether YAML can store ``content`` and ``read_yaml`` can read it again."""
    try:
        read_yaml(dump_yaml(content))
    except (yaml.YAMLError, ValueError):
        return False
    return True


def read_json(data: bytes | str) -> Any:
    """The content of JSON. Raises ``ValueError`` if it is invalid or nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except ValueError as error:
        raise ValueError(shown(str(error), "text", 300)) from error


def json_object(path: Path) -> JsonObject:
    """The JSON object in a file; empty if there is none, or if the file cannot be read."""
    try:
        content = read_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def dump_json(content: Any, **options: Any) -> str:
    """``content`` as the text of a JSON file, made ``jsonable``."""
    return json.dumps(jsonable(content), indent=1, **options) + "\n"


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """The content of a JSON-lines file, made ``jsonable``."""
    return "".join(json.dumps(jsonable(row), allow_nan=False) + "\n" for row in rows).encode()


def jsonable(value: Any) -> Any:
    """``value`` as strict JSON has it: arrays become lists, array scalars numbers, NaN and infinity None."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_cell(value: Any) -> Any:
    """``value`` for a CSV file. A name that a spreadsheet would compute as a formula gets an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple("=+-@\t\r")) else value
