"""``benchmarks/measurements.py``: what a result says about where it was measured."""

import importlib.metadata
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_versions_are_those_of_the_installed_libraries_of_environments(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import measurements

    versions = measurements.circumstances()["versions"]
    assert {"python", "proximo", "jax", "gymnax", "gymnasium"} <= versions.keys()
    assert all(version == importlib.metadata.version(name) for name, version in versions.items() if name != "python")
