"""HTML that is safe against injection: text is escaped, except markup made by this module."""

from __future__ import annotations

import html
from typing import Any

_VOID = frozenset({"meta", "input", "br", "hr", "img"})


class Markup(str):
    """Text that is already HTML."""


def escaped(content: Any) -> Markup:
    """``content`` as HTML: markup unchanged, lists joined, None empty, anything else escaped as text."""
    if isinstance(content, Markup):
        return content
    if content is None:
        return Markup("")
    if isinstance(content, list | tuple):
        return Markup("".join(escaped(part) for part in content))
    return Markup(html.escape(str(content), quote=True))


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """An element. In attributes, ``class_`` becomes ``class``, underscores become dashes, True gives a bare name, None and False none."""
    pairs = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        pairs += f" {key}" if value is True else f' {key}="{escaped(value)}"'
    if name in _VOID:
        return Markup(f"<{name}{pairs}>")
    return Markup(f"<{name}{pairs}>{escaped(content)}</{name}>")
