"""For every test: shapes are checked against their annotations, and compiled programs are kept for the next run."""

import importlib.metadata
import importlib.util
import inspect

import pytest
from jaxtyping import install_import_hook

# Where the annotations have shapes; the files above them handle no arrays of their own.
SHAPED = ("math", "distributions", "networks", "envs", "ppo", "drivers", "types")
install_import_hook([f"proximo.{name}" for name in SHAPED], "shape_checker.check")

import proximo  # noqa: E402, F401  (before JAX starts: it sets the remedy against the deadlock on few cores)
from proximo.runtime import prepare_jax  # noqa: E402

prepare_jax()


def pytest_collection_modifyitems(items):
    """Beside Gymnasium 1.4 gymnax cannot be installed: what names it is skipped, and only there. Elsewhere, where it lacks by
    mistake, the tests fail."""
    old = tuple(map(int, importlib.metadata.version("gymnasium").split(".")[:2])) < (1, 4)
    if old or importlib.util.find_spec("gymnax") is not None:
        return
    for item in items:
        source = inspect.getsource(item.function)
        if "gymnax" in item.name or "gymnax" in source:
            item.add_marker(pytest.mark.skip(reason="there is no gymnax for this Gymnasium"))
