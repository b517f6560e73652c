"""A pattern such as ``decisions/0*.md`` in the navigation stands for all pages that match it, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the patterns by the matching pages."""
    config.nav = _written_out(config.nav, Path(config.docs_dir))
    return config


def _written_out(nav: Any, docs: Path) -> Any:
    if isinstance(nav, dict):
        return {title: _written_out(item, docs) for title, item in nav.items()}
    if isinstance(nav, list):
        return [part for item in nav for part in (_found(item, docs) if isinstance(item, str) else [_written_out(item, docs)])]
    return nav


def _found(item: str, docs: Path) -> list[str]:
    return sorted(path.relative_to(docs).as_posix() for path in docs.glob(item)) if "*" in item else [item]
