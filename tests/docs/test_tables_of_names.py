"""Pages that name settings and metrics name those that there are."""

import re

import pytest

from proximo.config import LEAVES
from proximo.foreign_names import FOREIGN_NAMES

from pages import DOCS, codes, rows

LIBRARIES = [DOCS / f"from-{name}.md" for name in ("stable-baselines3", "cleanrl", "purejaxrl")]
METRICS = {code for row in rows(DOCS / "metrics.md") for code in codes(row[0])}
ROLLOUT = {"bootstrap", "valid", "reset", "step"}


@pytest.mark.parametrize("page", LIBRARIES, ids=lambda page: page.stem)
def test_what_is_ours_in_a_table_of_names_exists(page):
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


def test_every_setting_in_the_page_of_another_one_exists():
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
