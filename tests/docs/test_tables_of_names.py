"""Pages that name settings and metrics name those that there are."""

import ast
import re

import pytest

from proximo.config import LEAVES
from proximo.other_libraries import FOREIGN_NAMES

from pages import DOCS, ROOT, codes, rows

LIBRARIES = [DOCS / f"from-{name}.md" for name in ("stable-baselines3", "cleanrl", "purejaxrl")]
METRICS = {code for row in rows(DOCS / "metrics.md") for code in codes(row[0])}
ROLLOUT = {"bootstrap_value", "valid", "reset", "step"}


@pytest.mark.parametrize("page", LIBRARIES, ids=lambda page: page.stem)
def test_proximo_names_in_the_tables_exist(page):
    ours = {code.split("=")[0] for row in rows(page) for code in codes(row[1])}
    plain = {code for code in ours if re.fullmatch("[a-z_]+", code)}
    assert len(plain) > 15
    words = {choice for leaf in LEAVES.values() for choice in getattr(leaf.type, "__args__", ())}
    assert plain <= {*LEAVES, *words, *ROLLOUT}
    metrics = {code for code in ours if re.fullmatch("(rollout|train|memory|eval|time)/[a-z_]+", code)}
    assert metrics <= METRICS


@pytest.mark.parametrize("page", LIBRARIES, ids=lambda page: page.stem)
def test_tables_of_names_and_messages_agree(page):
    """``clip_range is called clip_eps here`` where the table says so too."""
    compared = 0
    for row in rows(page):
        for theirs in codes(row[0]) if " of a " not in row[0] else ():
            if ours := FOREIGN_NAMES.get(theirs.lower().split("(")[0]):
                compared += 1
                assert ours in {code.split("=")[0] for code in codes(row[1])}, row
    assert compared >= 4


def test_settings_named_on_other_pages_exist():
    """``normalize_reward`` in the metrics, ``checkpoint_every`` in how to resume …"""
    named = {
        (page.name, code)
        for page in DOCS.glob("*.md")
        for code in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page.read_text())
        if not page.name.startswith("from-")
    }
    near = {(page, code) for page, code in named if any(code in (f"{name}s", name[:-1]) for name in LEAVES)}
    assert not {(page, code) for page, code in near if code not in LEAVES}
    assert len({code for _, code in named} & set(LEAVES)) > 40


def test_settings_and_functions_of_the_algorithm_exist():
    parsed = [ast.parse(path.read_text()) for path in (ROOT / "src" / "proximo").rglob("*.py")]
    nodes = [node for tree in parsed for node in ast.walk(tree)]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    methods = {
        f"{node.name}.{part.name}"
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.FunctionDef)
    }
    table = rows(DOCS / "algorithm.md")
    settings = {code.split("=")[0] for row in table for code in codes(row[1])}
    functions = {code for row in table for code in codes(row[2])}
    assert settings <= set(LEAVES)
    assert functions <= defined | methods
    assert min(len(settings), len(functions)) > 20
