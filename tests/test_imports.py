"""Imports go down only: the house of DESIGN.md, enforced."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import proximo
import proximo.envs

SOURCE = Path(__file__).parents[1] / "src" / "proximo"

BASE = {
    "types",
    "errors",
    "spaces",
    "jax_setup",
    "custom_code",
    "signatures",
    "serialization",
    "threads",
    "lazy_exports",
    "notebook",
    "other_libraries",
    "processes",
}
CONFIG = {"config"} | BASE
STORAGE = {"storage"} | CONFIG
TRACKING = {"tracking"} | STORAGE
DISTRIBUTIONS = {"distributions", "math"} | CONFIG
NETWORKS = {"networks"} | DISTRIBUTIONS
PPO = {"ppo"} | NETWORKS
COLLECT = {"collect", "envs"} | PPO
SETTINGS = {"settings"} | COLLECT
EVALUATION = {"evaluation"} | SETTINGS | STORAGE
RENDERING = {"rendering"} | EVALUATION
TRAINING = {"training", "checks"} | RENDERING | TRACKING
SATELLITES = {"report", "export", "tuning", "publish", "integrations", "convert"}
ALLOWED = {
    **dict.fromkeys(BASE, BASE),
    "config": CONFIG,
    "storage": STORAGE,
    "tracking": TRACKING,
    "envs": {"envs", "types", "errors", "spaces", "custom_code", "lazy_exports"},
    "math": DISTRIBUTIONS - {"distributions"},
    "distributions": DISTRIBUTIONS,
    "networks": NETWORKS,
    "ppo": PPO,
    "collect": COLLECT,
    "settings": SETTINGS,
    "checks": {"checks"} | COLLECT,
    "evaluation": EVALUATION,
    "rendering": RENDERING,
    "training": TRAINING,
    "callbacks": TRAINING | {"callbacks"},
    "pretraining": TRAINING | {"pretraining", "agent"},
    **{name: TRAINING | {name} for name in SATELLITES},
    "integrations": TRAINING | {"integrations", "agent"},
    "agent": TRAINING | {"agent", "report", "export"},
    "cli": TRAINING | SATELLITES | {"cli"},
    "__main__": {"cli"},
}
PURE = ("math", "distributions", "networks", "ppo")
FORBIDDEN_IN_PURE = {"gymnasium", "gymnax", "rich", "logging", "tensorboardX", "wandb", "loguru"}


def package_of(path):
    """``envs`` for ``envs/jax/gymnax.py``, ``types`` for ``types.py``; the public face itself may import all."""
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imported(source):
    """Every module that ``source`` imports, inside functions too, as dotted names; names that are fetched from a package
    count as its modules (``from proximo import ppo``)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            if node.module == "proximo":
                yield from (f"proximo.{alias.name}" for alias in node.names)


def upward_imports(source, package):
    """The parts of proximo that ``source`` must not import in ``package``."""
    parts = [name.split(".")[1] for name in imported(source) if name.startswith("proximo.")]
    return sorted({part for part in parts if part not in ALLOWED[package] and not part.startswith("__")})


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_below(path):
    assert upward_imports(path.read_text(), package_of(path)) == []


@pytest.mark.parametrize("package", PURE)
def test_learner_source_imports_no_environment_library_or_logger(package):
    for path in (SOURCE / package).rglob("*.py"):
        libraries = {name.split(".")[0] for name in imported(path.read_text())}
        assert not libraries & FORBIDDEN_IN_PURE, path


def test_only_lower_layers_ask_for_the_kind_of_environment():
    below = {"envs", "collect", "evaluation", "rendering", "checks"}
    above = [path for path in FILES if package_of(path) not in below and path.name != "backends.py"]
    assert [path for path in above if re.search(r"isinstance\([^)]*(Gymnasium|Jax)Environment", path.read_text())] == []


def test_every_module_is_assigned_to_a_layer():
    assert {package_of(path) for path in FILES} - {"__main__"} <= set(ALLOWED)
    assert len(FILES) > 30


@pytest.mark.parametrize(
    ("source", "package"),
    [
        ("from proximo.ppo import update", "networks"),
        ("import proximo.collect.jax_collector", "ppo"),
        ("from proximo import envs", "ppo"),
        ("def f():\n    from proximo.training import train", "collect"),
        ("from proximo.config import Config", "envs"),
        ("if True:\n    import proximo.cli", "training"),
    ],
)
def test_an_upward_import_is_detected(source, package):
    assert upward_imports(source, package) != []


def test_learner_modules_import_no_environment_library():
    code = "import proximo.ppo, sys; print([m for m in ('gymnasium', 'gymnax', 'rich') if m in sys.modules])"
    assert run_python(code) == "[]"


def test_the_bare_package_does_not_import_jax():
    assert run_python("import proximo, sys; print('jax' in sys.modules)") == "False"


def test_help_imports_neither_jax_nor_numpy():
    code = "import sys; from proximo.cli import main; main([]); print([m for m in ('jax', 'numpy', 'ast') if m in sys.modules])"
    assert run_python(code).endswith("[]")


def test_callbacks_and_spaces_are_attributes_of_the_package():
    assert run_python("import proximo; print(proximo.callbacks.EarlyStopping.__name__)") == "EarlyStopping"
    assert run_python("import proximo; print(proximo.spaces.Box.__name__)") == "Box"


@pytest.mark.parametrize("package", [proximo, proximo.envs])
def test_every_public_name_is_listed_and_imported_lazily(package):
    names = dir(package)
    assert {"make_env"} <= set(names) == set(package.__all__)
    assert all(getattr(package, name) is not None for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'frobnicate'"):
        _ = package.frobnicate


def test_star_import_gives_the_public_names():
    assert run_python("from proximo import *; print(PPO.__name__, make_env.__name__)") == "PPO make_env"


def test_the_package_is_the_command():
    words = [sys.executable, "-m", "proximo", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip().endswith(proximo.__version__)


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_gymnax_loads_without_matplotlib_which_works_afterwards():
    code = """
import sys
from proximo.envs.jax import gymnax
assert gymnax.names()
assert "matplotlib" not in sys.modules
from gymnax.environments.misc import pong
import matplotlib.pyplot
assert pong.plt.figure is matplotlib.pyplot.figure
assert pong.colors.ListedColormap is matplotlib.colors.ListedColormap
"""
    subprocess.run([sys.executable, "-c", code], check=True)
