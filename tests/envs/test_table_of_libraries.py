"""A row of the table of libraries is all that registers an adapter; a library that is not installed is named with its installation."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from proximo.cli import main
from proximo.envs import libraries, listing, make_env
from proximo.envs.libraries import LIBRARIES
from proximo.envs.registry import names_code
from proximo.errors import EnvError

ROOT = Path(__file__).parents[2]
OPTIONAL = [name for name, library in LIBRARIES.items() if library.install and name != "gymnax"]
JAX = [name for name in OPTIONAL if LIBRARIES[name].is_jax]


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def text(path):
    return (ROOT / path).read_text()


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_has_an_adapter_an_example_a_description_and_a_pinned_extra(library):
    adapter = libraries.adapter(library)
    assert callable(adapter.names)
    assert callable(adapter.from_name)
    assert LIBRARIES[library].example in libraries.names(library) or not libraries.is_installed(library)
    assert f"`{library}:" in text("docs/environments.md")
    assert not names_code(f"{library}:Name")
    found = re.fullmatch(r"'proximo\[(\w+)\]'", LIBRARIES[library].install)
    for requirement in EXTRAS[found[1]] if found else ():
        package = re.match(r"[\w-]+", requirement)[0]
        assert re.search(rf"^{package}==", text("constraints.txt"), re.MULTILINE | re.IGNORECASE), package


def test_every_extra_is_in_the_readme_and_used_by_the_script():
    listed = re.search(r"They are called (`.*?)\.\n", text("README.md"), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(EXTRAS) - {"docs", "test", "dev"}
    named = set(re.findall(r"^        (\w+)\)", text(".ci/extras"), re.MULTILINE))
    assert named | {re.sub(r".*\[|\].*", "", LIBRARIES[library].install) for library in OPTIONAL} >= set(EXTRAS)


@pytest.fixture
def without(monkeypatch):
    """Make the imports of all optional libraries fail."""
    modules = {LIBRARIES[name].module for name in OPTIONAL}
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        monkeypatch.delitem(sys.modules, name)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an ImportError


@pytest.mark.usefixtures("without")
def test_missing_library_is_named_with_its_installation_and_lists_nothing(capsys):
    for library in OPTIONAL:
        env_id = f"{library}:{LIBRARIES[library].example}"
        with pytest.raises(EnvError) as raised:
            make_env(env_id)
        assert str(raised.value) == f"{env_id} needs a library that is not installed: pip install {LIBRARIES[library].install}."
    assert all(listing()[library] == [] for library in OPTIONAL)
    assert main(["envs", "brax"]) == 0
    assert capsys.readouterr().out.startswith("brax: not installed (pip install 'proximo[brax]')")


def test_installed_library_is_listed_without_its_import(tmp_path, monkeypatch, capsys):
    for library in JAX:
        module = LIBRARIES[library].module
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("raise RuntimeError('imported')")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    listed = listing()
    assert all(f"{library}:{LIBRARIES[library].example}" in listed[library] for library in JAX)
    assert main(["envs"]) == 0
    assert "brax: 10 ids, such as brax:ant; `proximo envs brax` lists them" in capsys.readouterr().out


def test_library_with_a_missing_dependency_raises_with_its_name(tmp_path, monkeypatch):
    """The library is installed, so the message does not name the extra."""
    (tmp_path / "jumanji.py").write_text("import no_such_library")
    monkeypatch.delitem(sys.modules, "jumanji", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EnvError, match=r"Importing jumanji raised ModuleNotFoundError: No module named 'no_such_library'"):
        make_env("jumanji:Snake-v1")
