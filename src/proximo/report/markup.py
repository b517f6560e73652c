"""HTML that cannot be injected into: text is escaped unless it is markup that was made here."""

from __future__ import annotations

import html
from typing import Any

_VOID = frozenset({"meta", "input", "br", "hr", "img"})


class Markup(str):
    """Text that is HTML already."""


def escaped(content: Any) -> Markup:
    """``content`` as HTML: markup as it is, lists joined, anything else as text; None is nothing."""
    if isinstance(content, Markup):
        return content
    if content is None:
        return Markup("")
    if isinstance(content, list | tuple):
        return Markup("".join(escaped(part) for part in content))
    return Markup(html.escape(str(content), quote=True))


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """An element. Attributes: ``class_`` is ``class``, underscores are dashes, True stands alone, None and False are left out."""
    pairs = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        pairs += f" {key}" if value is True else f' {key}="{escaped(value)}"'
    if name in _VOID:
        return Markup(f"<{name}{pairs}>")
    return Markup(f"<{name}{pairs}>{escaped(content)}</{name}>")
