"""The pages of the documentation as the tests read them."""

import ast
import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("decisions/*.md")), *sorted(DOCS.glob("suites/*.md"))]
HOOKS = DOCS / "hooks"


def name_of(page: Path) -> str:
    """``docs/python.md``."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[str]:
    """Its Python, block by block; of a notebook its cells."""
    if page.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(page.read_text())["cells"] if cell["cell_type"] == "code"]
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


class Command(NamedTuple):
    page: str
    verb: str
    words: list[str]


def commands() -> list[Command]:
    """Every ``proximo VERB …`` that stands as a line of code."""
    found = []
    for page in PAGES:
        for line in re.findall(r"^    (?:.*&& )?proximo ([a-z].*)$", page.read_text(), re.MULTILINE):
            verb, *words = re.findall(r'"[^"]*"|\S+', re.split(r"\s+#", line)[0])
            found.append(Command(name_of(page), verb, [word.strip('"') for word in words]))
    return found


def rows(page: Path) -> list[list[str]]:
    """The cells of all its tables, without heads."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.read_text().splitlines() if line.startswith("|")]
    inner = [[cell.strip() for cell in row] for row in cells]
    rules = [i for i, row in enumerate(inner) if all(re.fullmatch(":?-+:?", cell) for cell in row)]
    return [row for i, row in enumerate(inner) if i not in rules and i + 1 not in rules]


def codes(cell: str) -> list[str]:
    """What stands in ``code`` in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def modules(source: str) -> set[str]:
    """The top-level modules that a block imports."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module.split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def optional_modules() -> set[str]:
    """Modules that only an extra brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {re.split(r"[\[<>=]", text)[0] for text in project["dependencies"]}
    extras = {re.split(r"[\[<>=]", text)[0] for texts in project["optional-dependencies"].values() for text in texts}
    return {name.lower().replace("-", "_") for name in extras - core - {"proximo"}} | {"torch"}


def script(path: Path) -> ModuleType:
    """A script of the documentation, imported without its folder on Python's path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
