"""Add files of the repository to the site, in ``files/``, if a page links to them and they are outside of ``docs/``.

Pages link to them as in the repository (``../examples/sweep.py``). A source file becomes a page that shows it, a Markdown file becomes a
page, and other files are copied.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FOLDER = "files"
SHOWN = {".py": "python", ".yaml": "yaml"}
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that pages link to, and those that the navigation names."""
    wanted = [name.removeprefix(f"{FOLDER}/") for name in _named(config.nav) if name.startswith(f"{FOLDER}/")]
    for file in files.documentation_pages():
        wanted += _linked(f"docs/{file.src_uri}", file.content_string)
    added: set[str] = set()
    while wanted:
        path = wanted.pop()
        if path in added or path.startswith("docs/"):
            continue
        added.add(path)
        source = ROOT / path
        if source.suffix in SHOWN:
            text = f"# `{path}`\n\n```{SHOWN[source.suffix]}\n{source.read_text()}```\n"
            file = File.generated(config, _uri(path), content=text, inclusion=InclusionLevel.NOT_IN_NAV)
        elif source.suffix == ".md":
            file = File.generated(config, _uri(path), content=source.read_text(), inclusion=InclusionLevel.NOT_IN_NAV)
            wanted += _linked(path, source.read_text())
        else:
            file = File.generated(config, _uri(path), abs_src_path=str(source))
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    here = page.file.src_uri
    path = _path(here)

    def replace(match: re.Match[str]) -> str:
        target = _target(path, match[1])
        if target is None:
            return match[0]
        return posixpath.relpath(_uri(target), posixpath.dirname(here) or ".") + (match[2] or "")

    return LINK.sub(replace, markdown)


def _named(nav: Any) -> Iterator[str]:
    """All pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    elif nav is not None:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from _named(item)


def _linked(path: str, text: str) -> list[str]:
    """Paths of the files that the text of ``path`` links to."""
    return [target for match in LINK.finditer(text) if (target := _target(path, match[1])) is not None]


def _target(path: str, link: str) -> str | None:
    """The file of the repository to which ``link`` in the file ``path`` leads; None for other links."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return target if "://" not in link and not target.startswith("..") and (ROOT / target).is_file() else None


def _uri(path: str) -> str:
    """The path of a file of the repository within the site's sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")  # notebooks become pages
    return f"{FOLDER}/{path}.md" if Path(path).suffix in SHOWN else f"{FOLDER}/{path}"


def _path(uri: str) -> str:
    """The inverse of ``_uri``."""
    if not uri.startswith(f"{FOLDER}/"):
        return f"docs/{uri}"
    path = uri.removeprefix(f"{FOLDER}/")
    return path if (ROOT / path).is_file() else path.removesuffix(".md")
