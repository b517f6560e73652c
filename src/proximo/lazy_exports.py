"""Public names that are imported at their first use, so that ``import proximo`` does not wait for JAX. A package writes them once, as
imports in its ``__init__.pyi``, which type checkers, editors and ``lazy_exports`` read."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package with this ``__name__`` and ``__file__``, from the stub beside it."""

    @functools.cache
    def modules() -> dict[str, str]:
        import ast  # only now: `proximo --help` does not need it

        stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
        imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: node.module or "" for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(modules())
        if name.startswith("__") or name not in modules():
            raise _unknown(package, Path(file).parent, name)
        module = modules()[name]
        return (
            importlib.import_module(f"{package}.{name}") if module == package else getattr(importlib.import_module(module), name)
        )

    return get, lambda: sorted(modules())


def _unknown(package: str, folder: Path, name: str) -> Exception:
    """The error for an unknown name. If other libraries have this name, it is an ``ImportError``: for ``from proximo import RecurrentPPO``,
    Python would replace the message of an ``AttributeError``."""
    plain = AttributeError(f"module {package!r} has no attribute {name!r}")
    is_module = (folder / name).is_dir() or (folder / f"{name}.py").is_file()  # Python asks before it imports it
    if name.startswith("_") or is_module:
        return plain
    from proximo.other_libraries import answer_name

    known = answer_name(name)
    return ImportError(f"{package} has no {name}: {known}.") if known else plain
