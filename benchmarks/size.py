"""Measure the size of proximo: lines, lines of code and tokens of each room, files, settings, tests, pages.

    python benchmarks/size.py            # this checkout
    python benchmarks/size.py FOLDER     # another one

Lines of code are without blanks, comments and docstrings; tokens are without comments, docstrings and what only lays out lines.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
LONG = 110
"""Characters of a long line."""


def docstring_lines(tree: ast.Module) -> set[int]:
    """Numbers of the lines of strings that stand alone: docstrings, and the documentation of attributes."""
    alone = (node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    return {
        line for node in alone if isinstance(node.value.value, str) for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }


def measure(path: Path) -> Counter[str]:
    """Lines, lines of code, tokens and long lines of one file."""
    text = path.read_text()
    documentation = docstring_lines(ast.parse(text))
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in LAYOUT]
    tokens = [token for token in tokens if token.type != tokenize.STRING or token.start[0] not in documentation]
    code = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    lines = text.splitlines()
    return Counter(files=1, lines=len(lines), code=len(code), tokens=len(tokens), long=sum(len(line) > LONG for line in lines))


def row(name: str, size: Counter[str]) -> str:
    return f"| {name} | {size['files']} | {size['lines']:,} | {size['code']:,} | {size['tokens']:,} | {size['long'] / max(size['lines'], 1):.1%} |"


def words(pages: list[Path]) -> int:
    return sum(len(page.read_text().split()) for page in pages)


def main(folder: Path) -> None:
    """Print the tables."""
    package = folder / "src" / "proximo"
    rooms: dict[str, Counter[str]] = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        inside = path.relative_to(package)
        rooms.setdefault(inside.parts[0] if len(inside.parts) > 1 else "root files", Counter()).update(measure(path))
    print(f"| Room | Files | Lines | Lines of code | Tokens | Lines over {LONG} |\n|---|---|---|---|---|---|")
    for name, size in rooms.items():
        print(row(name, size))
    print(row("**src/proximo**", sum(rooms.values(), Counter())))
    for name in ("tests", "benchmarks"):
        print(row(name, sum(map(measure, sorted((folder / name).rglob("*.py"))), Counter())))
    generated = {folder / "docs" / "settings.md", *(folder / "docs" / "suites").rglob("*.md")}
    docs = [page for page in (folder / "docs").rglob("*.md") if page not in generated]
    print(
        f"\nWords of docs without docs/suites and settings.md: {words(docs):,}, decisions {words(list((folder / 'docs' / 'decisions').glob('*.md'))):,}"
    )
    for name in ("CHANGELOG.md", "benchmarks/RESULTS.md"):
        print(f"{name}: {(folder / name).stat().st_size / 1000:.1f} kB")
    entries, _, settings = (package / "config" / "schema.py").read_text().partition("class EnvConfig")
    print(f"Settings: {settings.count('= _setting(')}, with {entries.count('= _setting(')} entries")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
