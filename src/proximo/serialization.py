"""YAML and JSON, read within limits, so that no untrusted file takes minutes or causes a ``RecursionError``."""

import itertools
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
MAX_YAML_DEPTH = 20
MAX_YAML_NODES = 10_000
"""Values, lists and mappings in YAML with aliases, each alias counted as what it stands for."""
MAX_YAML_BITS = 1000
MAX_JSON_DEPTH = 100


class _Loader(yaml.SafeLoader):
    """The safe loader, which also rejects deep nesting. ``10:50`` is text, and ``010`` is 10.

    Without ``aliases``, it rejects them (a few can expand exponentially). It also rejects repeated names,
    which merged mappings need to replace values.
    """

    def __init__(self, text: str, aliases: bool):
        super().__init__(text)
        self.aliases, self.depth = aliases, 0
        self.sizes: dict[Any, float] = {}  # the number of nodes that a complete node stands for

    def compose_node(self, parent: Any, index: Any) -> Any:
        line, is_alias = f"line {self.peek_event().start_mark.line + 1}", self.check_event(yaml.AliasEvent)
        if is_alias and not self.aliases:
            raise yaml.YAMLError(f"{line}: aliases (*name) are not supported; write the value out")
        if self.depth == MAX_YAML_DEPTH:
            raise yaml.YAMLError(f"{line}: nested deeper than {MAX_YAML_DEPTH} levels")
        self.depth += 1
        node: Any = super().compose_node(parent, index)
        self.depth -= 1
        if not is_alias:
            pairs = [(x,) for x in node.value] if isinstance(node, yaml.SequenceNode) else node.value
            parts = () if isinstance(node, yaml.ScalarNode) else itertools.chain(*pairs)
            self.sizes[node] = 1 + sum(self.sizes.get(part, math.inf) for part in parts)
        if self.aliases and self.sizes.get(node, math.inf) > MAX_YAML_NODES:
            raise yaml.YAMLError(
                f"{line}: its aliases (*name) expand to more than {MAX_YAML_NODES:,} values, or contain themselves"
            )
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int | str:
        if ":" in node.value:  # YAML 1.1 counts to the base 60, so that the levels 10:50 would be 650
            return node.value
        if node.value.replace("_", "").lstrip("+-").isdecimal():  # YAML 1.1 reads 010 as octal
            node.value = str(int(node.value.replace("_", "")))
        number = super().construct_yaml_int(node)
        if number.bit_length() > MAX_YAML_BITS:  # Python refuses to print integers of thousands of digits
            raise yaml.YAMLError(f"{shown(node.value, 'text')} is too large, expected at most {MAX_YAML_BITS} bits")
        return number

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
    """The content of YAML. Raises ``ValueError`` if it is invalid or exceeds a limit, and for aliases if not allowed."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        if len(text) > MAX_YAML:
            raise ValueError(f"it has {len(text):,} characters, expected at most {MAX_YAML:,}")
        return _Loader(text, aliases).get_single_data()
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
    """The content of JSON. Raises ``ValueError`` if it is invalid or nested deeper than ``MAX_JSON_DEPTH``."""
    try:
        content = json.loads(data)
        if _depth(content) > MAX_JSON_DEPTH:
            raise RecursionError
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MAX_JSON_DEPTH} levels") from None
    except ValueError as error:
        raise ValueError(shown(str(error), "text", 300)) from error
    return content


def _depth(content: Any) -> int:
    if not isinstance(content, dict | list):
        return 0
    return 1 + max(map(_depth, content.values() if isinstance(content, dict) else content), default=0)


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
