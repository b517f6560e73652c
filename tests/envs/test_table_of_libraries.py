"""Each library of environments is named everywhere where a user looks for it."""

import re
import tomllib
from pathlib import Path

import pytest

from proximo.envs.libraries import LIBRARIES
from proximo.envs.registry import names_code
from proximo.storage import system_info

ROOT = Path(__file__).parents[2]
EXTRAS = {
    name: found[1] for name, library in LIBRARIES.items() if (found := re.fullmatch(r"'proximo\[(\w+)\]'", library.install))
}


def text(path):
    return (ROOT / path).read_text()


def packages(extra):
    """The packages that an extra of proximo installs."""
    return [re.match(r"[\w-]+", requirement)[0] for requirement in extras()[extra]]


def extras():
    return tomllib.loads(text("pyproject.toml"))["project"]["optional-dependencies"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_documentation_describes_the_library(library):
    assert f"`{library}:" in text("docs/environments.md")
    assert not names_code(f"{library}:Name")


@pytest.mark.parametrize("library", EXTRAS)
def test_extra_is_pinned_recorded_and_documented(library):
    recorded = system_info._JAX_EXTRAS if LIBRARIES[library].is_jax else system_info._GYMNASIUM_PACKAGES
    for package in packages(EXTRAS[library]):
        assert re.search(rf"^{package}==", text("constraints.txt"), re.MULTILINE | re.IGNORECASE), package
        assert package in recorded
    assert f"`{EXTRAS[library]}`" in text("README.md")


def test_script_uses_every_extra_and_trains_on_every_library():
    script = text(".ci/extras")
    assert set(re.findall(r"^        (\w+)\)", script, re.MULTILINE)) == set(extras())
    for library in EXTRAS:
        assert f"smoke {library}:" in script


def test_readme_lists_every_extra_that_a_user_may_want():
    listed = re.search(r"They are called (`.*?)\.\n", text("README.md"), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(extras()) - {"docs", "test", "dev"}


def test_contributing_installs_the_extras_of_all_jax_libraries():
    names = ",".join(extra for library, extra in EXTRAS.items() if LIBRARIES[library].is_jax)
    assert f'pip install -e ".[{names}]"' in text("CONTRIBUTING.md")
