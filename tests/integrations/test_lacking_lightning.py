"""Without its extra the bridge to Lightning says which one; with or without it, nothing else imports it."""

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["lightning"] = None
try:
    import proximo.integrations.lightning
except Exception as error:
    print(type(error).__name__, error)
"""
REST = """
import importlib, pkgutil, sys
import proximo
for module in pkgutil.walk_packages(proximo.__path__, "proximo."):
    if not module.name.startswith("proximo.integrations.") and module.name != "proximo.__main__":
        importlib.import_module(module.name)
assert "proximo.integrations" in sys.modules
print([name for name in ("torch", "lightning") if name in sys.modules])
"""


def said(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_missing_extra_raises_one_sentence():
    sentence = "proximo.integrations.lightning needs a library that is not installed: pip install 'proximo[lightning]'."
    assert said(WITHOUT) == f"EnvError {sentence}"


def test_only_the_integration_imports_lightning():
    assert said(REST) == "[]"
