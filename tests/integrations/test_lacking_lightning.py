"""Without its extra the bridge to Lightning says which one; nothing else imports it."""

import importlib
import re
import sys
from pathlib import Path

import pytest

import proximo
from proximo.errors import EnvError


def test_missing_extra_raises_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.delitem(sys.modules, "proximo.integrations.lightning", raising=False)
    with pytest.raises(EnvError) as error:
        importlib.import_module("proximo.integrations.lightning")
    sentence = "proximo.integrations.lightning needs a library that is not installed: pip install 'proximo[lightning]'."
    assert str(error.value) == sentence


def test_only_the_integration_imports_lightning():
    imported = re.compile(r"^\s*(import|from) (torch|lightning|pytorch_lightning)\b", re.MULTILINE)
    files = Path(proximo.__file__).parent.rglob("*.py")
    assert {path.parent.name for path in files if imported.search(path.read_text())} == {"integrations"}
