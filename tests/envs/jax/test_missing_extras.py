"""Optional libraries of JAX environments that are not installed: errors and listings."""

import sys
import tomllib
from pathlib import Path

import pytest

from proximo.cli import main
from proximo.envs import listing, make_env
from proximo.envs.jax import EXTRAS
from proximo.envs.registry import ID_FORMS, names_code
from proximo.errors import EnvError

IDS = {
    "brax": ("brax", "brax:ant"),
    "craftax": ("craftax", "craftax:Craftax-Symbolic-v1"),
    "jumanji": ("jumanji", "jumanji:Snake-v1"),
    "navix": ("navix", "navix:Navix-Empty-5x5-v0"),
    "playground": ("mujoco_playground", "playground:CartpoleBalance"),
}


@pytest.fixture
def without(monkeypatch):
    """Make the imports of all of them fail."""
    modules = [module for module, _ in IDS.values()]
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        monkeypatch.delitem(sys.modules, name)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an ImportError


def test_each_library_has_an_extra_and_an_id():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert tuple(IDS) == EXTRAS
    assert set(EXTRAS) <= set(project["optional-dependencies"])
    for _, env_id in IDS.values():
        assert not names_code(env_id)
        assert f"{env_id.partition(':')[0]}:NAME" in ID_FORMS


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_library_is_named_with_its_extra(extra):
    env_id = IDS[extra][1]
    with pytest.raises(EnvError, match=rf"^{env_id} needs a library that is not installed: pip install 'proximo\[{extra}\]'\.$"):
        make_env(env_id)


@pytest.mark.usefixtures("without")
def test_a_missing_library_lists_nothing(capsys):
    assert all(listing()[extra] == [] for extra in EXTRAS)
    assert main(["envs", "brax"]) == 0
    assert capsys.readouterr().out.startswith("brax: not installed (pip install 'proximo[brax]')")


def test_an_installed_library_is_listed_without_being_imported(tmp_path, monkeypatch, capsys):
    for module, _ in IDS.values():
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise RuntimeError('imported')")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    listed = listing()
    for extra, (_, env_id) in IDS.items():
        assert env_id in listed[extra]
    assert main(["envs"]) == 0
    assert "brax: 10 ids, such as brax:ant; `proximo envs brax` lists them" in capsys.readouterr().out


def test_a_library_with_a_missing_dependency_raises_with_its_name(tmp_path, monkeypatch):
    """The library is installed, so the message does not name the extra."""
    (tmp_path / "jumanji.py").write_text("import no_such_library")
    monkeypatch.delitem(sys.modules, "jumanji", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EnvError, match=r"Importing jumanji raised ModuleNotFoundError: No module named 'no_such_library'"):
        make_env("jumanji:Snake-v1")
