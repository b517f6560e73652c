"""Optional libraries of JAX environments that are not installed: errors and listings."""

import sys

import pytest

from proximo.cli import main
from proximo.envs import listing, make_env
from proximo.envs.libraries import LIBRARIES
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


def test_every_library_with_an_extra_is_tested_here():
    assert set(IDS) == {name for name, library in LIBRARIES.items() if library.is_jax} - {"gymnax", "proximo"}


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("extra", IDS)
def test_a_missing_library_is_named_with_its_extra(extra):
    env_id = IDS[extra][1]
    with pytest.raises(EnvError, match=rf"^{env_id} needs a library that is not installed: pip install 'proximo\[{extra}\]'\.$"):
        make_env(env_id)


@pytest.mark.usefixtures("without")
def test_a_missing_library_lists_nothing(capsys):
    assert all(listing()[extra] == [] for extra in IDS)
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
