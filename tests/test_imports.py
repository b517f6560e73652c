"""Imports go down only, from each folder to those that ``ALLOWED`` lists."""

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
    "types", "errors", "spaces", "jax_setup", "custom_code", "serialization", "streams", "threads", "lazy_exports",
    "other_libraries", "processes",
}  # fmt: skip
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


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def package_of(path):
    """``envs`` for ``envs/jax/gymnax.py``, ``types`` for ``types.py``."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


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
    parts = {name.split(".")[1] for name in imported(source) if name.startswith("proximo.")}
    return sorted(part for part in parts - ALLOWED[package] if not part.startswith("__"))


def test_a_module_imports_only_from_below():
    assert len(FILES) > 30
    upward = {str(path): upward_imports(path.read_text(), package_of(path)) for path in FILES}
    assert not {path: parts for path, parts in upward.items() if parts}


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


@pytest.mark.parametrize("package", PURE)
def test_learner_source_imports_no_environment_library_or_logger(package):
    for path in (SOURCE / package).rglob("*.py"):
        assert not {name.split(".")[0] for name in imported(path.read_text())} & FORBIDDEN_IN_PURE, path


def test_only_lower_layers_ask_for_the_kind_of_environment():
    below = {"envs", "collect", "evaluation", "rendering", "checks"}
    above = [path for path in FILES if package_of(path) not in below and path.name != "backends.py"]
    assert [path for path in above if re.search(r"isinstance\([^)]*(Gymnasium|Jax)Environment", path.read_text())] == []


IN_A_NEW_PROCESS = {
    "learner": "import proximo.ppo, sys; print([m for m in ('gymnasium', 'gymnax', 'rich') if m in sys.modules])",
    "package": "import proximo, sys; print([m for m in ('jax', 'numpy') if m in sys.modules])",
    "help": "import sys; from proximo.cli import main; main([]); print([m for m in ('jax', 'numpy', 'ast') if m in sys.modules])",
    "gymnax": """
import sys
from proximo.envs.jax import gymnax
assert gymnax.names()
print([m for m in ("matplotlib", "seaborn") if m in sys.modules])
from gymnax.environments.misc import pong
import matplotlib.pyplot
assert pong.plt.figure is matplotlib.pyplot.figure
assert pong.colors.ListedColormap is matplotlib.colors.ListedColormap
""",
}
"""Programs that print the modules that they import too early, and use those that they need afterwards."""


@pytest.mark.parametrize("code", IN_A_NEW_PROCESS.values(), ids=IN_A_NEW_PROCESS)
def test_nothing_is_imported_before_it_is_needed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize("package", [proximo, proximo.envs])
def test_every_public_name_is_listed_and_imported_lazily(package):
    names = dir(package)
    assert {"make_env"} <= set(names) == set(package.__all__)
    found = {}
    exec(f"from {package.__name__} import *", found)
    assert all(found[name] is getattr(package, name) for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'frobnicate'"):
        _ = package.frobnicate


def test_the_package_is_the_command():
    words = [sys.executable, "-m", "proximo", "--version"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip().endswith(proximo.__version__)
