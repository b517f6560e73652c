"""Equations as MathML, which browsers draw without a script, a font or a network."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the spans and blocks that arithmatex has marked."""
    page_html = BLOCK.sub(lambda match: f'<div class="equation">{_mathml(match[1], "block")}</div>', html)
    return INLINE.sub(lambda match: _mathml(match[1], "inline"), page_html)


def _mathml(latex: str, display: str) -> str:
    try:
        converted = convert(html.unescape(latex).strip(), display=display)
    except Exception as error:
        raise PluginError(f"An equation cannot be converted: {latex.strip()} ({error!r})") from error
    if "\\" in converted:  # the converter leaves unknown commands unchanged
        raise PluginError(f"An equation cannot be converted: {latex.strip()}")
    return converted
