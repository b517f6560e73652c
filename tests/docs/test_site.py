"""The site is built without a warning, from what is there, and asks nothing of a network."""

import json
import os
import re
import shutil
import subprocess
import sys
from urllib.parse import unquote

import pytest

from proximo.config import GROUPS, LEAVES
from proximo.other_libraries import libraries, load

from pages import DOCS, HOOKS, PAGES, ROOT, script

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
pytest.importorskip("material", reason="the extra docs is not installed")
pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
pytest.importorskip("mkdocstrings_handlers.python", reason="the extra docs is not installed")

equations, links, notebooks, sources = (script(HOOKS / f"{name}.py") for name in ("equations", "links", "notebooks", "sources"))
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
LOADED = re.compile(r'<(?:script|img|source|iframe|link)\b[^>]*?\b(?:src|href)=["\']?(https?:|//)', re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


def test_every_page_is_built_and_in_the_navigation(site):
    start = (site / "index.html").read_text()
    for page in PAGES[1:]:
        built = page.relative_to(DOCS).with_suffix(".html")
        assert (site / built).is_file()
        assert f'href="{built.as_posix()}"' in start


def test_pages_load_nothing_from_other_hosts(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert not [page.name for page in pages if LOADED.search(page.read_text())]
    assert not [sheet.name for sheet in site.rglob("*.css") if re.search(r"@import|url\(['\"]?(https?:)?//", sheet.read_text())]
    assert LOADED.search('<link rel="stylesheet" href="https://fonts.example/a.css">')


def test_links_and_pictures_lead_to_files_of_the_site(site):
    texts = {
        page: page.read_text() for page in site.rglob("*.html") if page.name != "404.html"
    }  # a server's page: absolute links
    ids = {page: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for page, text in texts.items()}
    broken = []
    for page, text in texts.items():
        for link in set(re.findall(r'\b(?:href|src)="([^"]+)"', text)):
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            found = target.is_file() and (not anchor or anchor in ids.get(target, {anchor}))
            if not found and not re.match("[a-z]+:", link):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_pages_from_disk_have_the_search_index_and_its_frame(site):
    """Pages from disk may neither fetch an index nor start a worker."""
    index = (site / "search" / "search_index.js").read_text()
    assert json.loads(index.removeprefix("var __index = "))["docs"]
    for page in (site / "index.html", site / "decisions" / "index.html"):
        scripts = re.findall(r'<script src="([^"]+)"', page.read_text())
        assert (page.parent / scripts[0]).samefile(site / "iframe-worker.js")


@pytest.mark.skipif(not BROWSER, reason="no Chromium is installed")
def test_the_search_of_a_page_from_disk_finds_pages(site, tmp_path):
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000"]
    address = f"{(site / 'decisions' / 'index.html').as_uri()}?q=burn_in"
    shown = subprocess.run([*words, "--dump-dom", address], capture_output=True, text=True, check=True, timeout=120).stdout
    results = re.findall(r'<a href="([^"#]+)[^"]*" class="md-search-result__link"', shown)
    assert (site / "memory.html").as_uri() in results


def test_equations_are_drawn_by_the_browser_or_end_the_build(site):
    page = (site / "algorithm.html").read_text()
    assert page.count("<math") > 15
    assert not re.search(r"\\[\[(]|\$\$", re.sub(r"<script.*?</script>|<annotation.*?</annotation>", "", page, flags=re.DOTALL))
    for wrong in (r"\nosuchthing{a}", r"\left(a"):
        with pytest.raises(Exception, match="cannot be converted"):
            equations._mathml(wrong, "inline")


def test_site_excludes_hooks_and_scripts(site):
    assert not [*site.rglob("draw.py"), *site.rglob("links.py"), *site.rglob("run.py")]
    assert (site / "figures" / "sequences.png").is_file()


def test_every_setting_is_on_its_page(site):
    page = (site / "settings.html").read_text()
    assert set(re.findall(r'<span id="([a-z_0-9]+)">', page)) == set(LEAVES)
    assert all(f'id="{group}"' in page for group in GROUPS)
    assert (
        '| <span id="num_envs"></span>`num_envs` | `8` | integer, 1 or more | number of environments'
        in (DOCS / "settings.md").read_text()
    )
    theirs = {entry.name for library in libraries() for entry in load(library).settings} - set(LEAVES)
    assert not [name for name in theirs if f"<code>{name}</code>" not in page]


def test_public_names_are_in_the_reference(site):
    import proximo

    page = (site / "api.html").read_text()
    for name in proximo.__all__:
        assert re.search(rf'id="proximo(\.[a-z_]+)*\.{name}"', page), name
    assert "Raises:" in page


def test_markers_of_source_are_replaced_by_its_lines(site):
    start, lines = sources.lines_of("math/loss_terms.py", "clipped_surrogate")
    text = (sources.SOURCE / "math" / "loss_terms.py").read_text().splitlines()
    assert lines[0] == text[start - 1].strip()
    assert lines[0].startswith("def clipped_surrogate(")
    assert lines[-1].strip().startswith("return -jnp.minimum")
    assert not any('"""' in line for line in lines)
    _, lines = sources.lines_of("ppo/loss.py", "ppo_loss", ["policy_loss", "total"])
    assert lines[0].strip().startswith("policy_loss, objective_metrics = ")
    assert any(line.strip().startswith("total = ") for line in lines)
    for path, function, names in (("math/loss_terms.py", "clipped", None), ("math/loss_terms.py", "value_loss", ["ratio"])):
        with pytest.raises(Exception, match=r"has no|assigns no"):
            sources.lines_of(path, function, names)
    assert not [page.name for page in site.glob("*.html") if re.search("(<|&lt;)!-- source", page.read_text())]
    assert sum(len(sources.MARK.findall(page.read_text())) for page in PAGES) >= 15


def test_links_to_repository_files_lead_to_site_pages(site):
    assert links._target("docs/seeds.md", "../examples/sweep.py") == "examples/sweep.py"
    assert links._target("docs/seeds.md", "https://example.org/a.md") is None
    assert links._uri("examples/sweep.py") == "files/examples/sweep.py.md"
    assert links._path("files/examples/sweep.py.md") == "examples/sweep.py"
    assert links._path("files/CHANGELOG.md") == "CHANGELOG.md"
    assert "make_hyperparameters" in (site / "files" / "examples" / "sweep.py.html").read_text()


def test_a_notebook_becomes_a_page_with_its_outputs():
    picture = {"data": {"image/png": "aGVsbG8=\n", "text/plain": ["<Figure>"]}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]},
        {"cell_type": "code", "source": ["draw()"], "outputs": [picture]},
    ]
    text, pictures = notebooks.page({"cells": cells}, "some")
    assert text.startswith("# Title")
    assert "```python\n1 + 1\n```\n\n```text\n2\n```" in text
    assert pictures == {"some-0.png": b"hello"}
    assert "(some-0.png)" in text
    assert "<Figure>" not in text
