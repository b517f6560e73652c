"""Show lines of the library's source in a page. They are read when the site is built, so they are always current.

<!-- source: math/loss_terms.py clipped_surrogate -->            the whole function
<!-- source: ppo/algorithm.py loss: ratio, total -->         its statements from the first to the last one that assigns one of these names
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

SOURCE = Path(__file__).parents[2] / "src" / "proximo"
MARK = re.compile(r"^<!-- source: (\S+) ([\w.]+)(?:: ([\w, ]+))? -->$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the marks by the lines."""
    return MARK.sub(lambda match: _block(match[1], match[2], match[3]), markdown)


def lines_of(path: str, function: str, names: list[str] | None = None) -> tuple[int, list[str]]:
    """(number of the first line, lines) of ``function`` without its docstring, or of its statements from the first to the last one
    that assigns one of ``names``. Raises ``PluginError`` if the source has no such function or name."""
    text = (SOURCE / path).read_text()
    scope: ast.AST = ast.parse(text)
    for name in function.split("."):
        found = [node for node in ast.iter_child_nodes(scope) if getattr(node, "name", None) == name]
        if not found:
            raise PluginError(f"{path} has no {function}.")
        scope = found[0]
    assert isinstance(scope, ast.FunctionDef | ast.ClassDef)
    lines = text.splitlines()
    if names is None:
        start, end = scope.lineno, scope.end_lineno
        chosen = list(range(start, (end or start) + 1))
        if ast.get_docstring(scope) is not None:
            docstring = scope.body[0]
            chosen = [i for i in chosen if not docstring.lineno <= i <= (docstring.end_lineno or 0)]
        return start, [lines[i - 1] for i in chosen]
    assigned = [(statement, {name for node in ast.walk(statement) for name in _assigned(node)}) for statement in scope.body]
    statements = [statement for statement, found in assigned if found & set(names)]
    missing = set(names) - {name for _, found in assigned for name in found}
    if missing:
        raise PluginError(f"{function} of {path} assigns no {', '.join(sorted(missing))}.")
    start = min(node.lineno for node in statements)
    end = max(node.end_lineno or 0 for node in statements)
    return start, lines[start - 1 : end]


def _assigned(node: ast.AST) -> Iterator[str]:
    """Names that a statement assigns."""
    targets = (
        node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []
    )
    for target in targets:
        yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def _block(path: str, function: str, names: str | None) -> str:
    start, lines = lines_of(path, function, [name.strip() for name in names.split(",")] if names else None)
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    body = "\n".join(line[indent:] for line in lines)
    return f'```python title="src/proximo/{path}, line {start}"\n{body}\n```'
