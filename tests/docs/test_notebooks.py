"""The notebooks are committed with what they show, and run in a process of their own (slow; their cells run with those of the pages)."""

import json

import pytest

from pages import DOCS, NOTEBOOKS, PAGES, script

MAX_BYTES = 150_000


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    """One of them on gymnax:CartPole-v1."""
    pytest.importorskip("nbclient", reason="the extra docs is not installed")
    notebook = script(DOCS / "notebooks" / "run.py").run(path)
    assert sum("assert " in "".join(cell["source"]) for cell in notebook["cells"]) >= 2  # it claims something, and it is true
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_small_executed_and_contains_no_local_paths(path):
    text = path.read_text()
    assert len(text) < MAX_BYTES
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert not any(folder in text for folder in ("/tmp/", "/home/"))
    assert any(path.name in page.read_text() for page in PAGES)


def test_exactly_four_notebooks_are_tested():
    assert [path.stem for path in NOTEBOOKS] == ["clipped-objective", "masked-pendulum", "memory", "pendulum"]
