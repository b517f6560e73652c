"""The scripts of ``benchmarks/`` can be imported by each test, as they import each other."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    """The folder, on Python's path for one test."""
    folder = Path(__file__).parents[2] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    return folder
