"""``benchmarks/measurements.py``: what a result says about where it was measured."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_versions_are_those_of_the_environments_that_are_in_use():
    code = "import gymnax, measurements; print(sorted(measurements.circumstances()['versions'].items()))"
    result = subprocess.run([sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    assert f"('gymnax', '{importlib.metadata.version('gymnax')}')" in result.stdout
    assert "minigrid" not in result.stdout
