"""Pages that name settings and metrics name those that there are."""

import ast
import re

import pytest

from proximo.config import ENTRIES, LEAVES
from proximo.other_libraries import load

from pages import DOCS, ROOT, codes, rows, script

LIBRARIES = sorted(DOCS.glob("from-*.md"))
TABLES = script(DOCS / "tables.py")
METRICS = {code for row in rows(DOCS / "metrics.md") for code in codes(row[0])}
ROLLOUT = {"bootstrap_value", "valid", "reset", "step"}


@pytest.mark.parametrize("page", LIBRARIES, ids=lambda page: page.stem)
def test_proximo_names_in_the_tables_exist(page):
    ours = {code.split("=")[0] for row in rows(page) for code in codes(row[0] if row[1] == TABLES.SAME else row[1])}
    plain = {code for code in ours if re.fullmatch(r"[a-z_]+(_settings\.[a-z0-9_]+)?", code)}
    assert len(plain) > 15
    words = {choice for leaf in LEAVES.values() for choice in getattr(leaf.type, "__args__", ())}
    assert plain <= {*LEAVES, *ENTRIES, *words, *ROLLOUT}
    metrics = {code for code in ours if re.fullmatch("(rollout|train|memory|eval|time)/[a-z_]+", code)}
    assert metrics <= METRICS


@pytest.mark.parametrize("page", LIBRARIES, ids=lambda page: page.stem)
def test_tables_are_those_of_the_files_that_messages_read(page):
    text = page.read_text()
    assert TABLES.with_tables(text) == text, "run `python docs/tables.py`"
    marks = [(match[2], match[3]) for match in TABLES.MARK.finditer(text)]
    assert marks
    for library in {name for name, _ in marks}:
        assert {section for name, section in marks if name == library} == set(load(library).sections)


@pytest.mark.parametrize(("page", "marks", "row"), [("settings", 3, "`gamma`"), ("zoo", 1, "proximo watch zoo:CartPole`")])
def test_generated_tables_are_current(page, marks, row):
    text = (DOCS / f"{page}.md").read_text()
    assert text.count("<!-- end -->") == marks
    assert TABLES.with_tables(text) == text, "run `python docs/tables.py`"
    assert row in text


def test_settings_named_on_other_pages_exist():
    """``normalize_reward`` in the metrics, ``checkpoint_every`` in how to resume …"""
    named = {
        (page.name, code)
        for page in DOCS.glob("*.md")
        for code in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page.read_text())
        if not page.name.startswith(("from-", "settings"))  # they list names of other libraries
    }
    near = {(page, code) for page, code in named if any(code in (f"{name}s", name[:-1]) for name in LEAVES)}
    assert not {(page, code) for page, code in near if code not in LEAVES}
    assert len({code for _, code in named} & set(LEAVES)) > 40


def test_settings_and_functions_of_the_algorithm_exist():
    nodes = [node for path in (ROOT / "src" / "proximo").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    methods = {f"{node.name}.{part.name}" for node in classes for part in node.body if isinstance(part, ast.FunctionDef)}
    table = rows(DOCS / "algorithm.md")
    settings = {code.split("=")[0] for row in table for code in codes(row[1])}
    functions = {code for row in table for code in codes(row[2])}
    assert settings <= {*LEAVES, *ENTRIES}
    assert functions <= defined | methods
    assert min(len(settings), len(functions)) > 20
