"""Writes Matplotlib figures to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proximo.errors import ConfigError


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write ``figure`` to ``path``, whose ending chooses the format, and return the path. Raises ``ConfigError`` if that fails."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot write {path} ({error}): expected a name such as curve.png in a folder that exists.") from error
    return Path(path)
