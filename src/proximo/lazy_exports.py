"""Public names that are imported at their first use, so that ``import proximo`` does not wait for JAX. A package
writes them once, as imports in its ``__init__.pyi``, which type checkers and ``lazy_exports`` read."""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package with this ``__name__`` and ``__file__``, from the stub beside it."""

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
            # Python asks for a module before it imports it.
            if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}") is None:
                from proximo.other_libraries import answer_name

                if known := answer_name(name):
                    # `from proximo import RecurrentPPO` would replace the message of an AttributeError.
                    raise ImportError(f"{package} has no {name}: {known}.")
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules()[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(modules()[name]), name)

    return get, lambda: sorted(modules())
