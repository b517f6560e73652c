import json
import os

import pytest

from proximo.config import Config
from proximo.storage import run_directory
from proximo.storage.system_info import system_differences, system_info

CONFIG = Config()


def test_system_info_is_json_and_equals_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    system = system_info()
    assert json.loads(json.dumps(system)) == system
    assert system["versions"]["jax"] == __import__("jax").__version__
    assert system["environment"]["XLA_FLAGS"].endswith(" ")
    run_directory.write_start_files(tmp_path, CONFIG, "", system)
    assert system_differences(tmp_path, "brax") == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["versions"].update(jax="0.0.1"), "jax was 0.0.1 and is"),
        (lambda s: s["versions"].update(brax="0.1"), "brax was 0.1 and is"),
        (lambda s: s.update(cpu_count=999), "the number of CPUs was 999 and is"),
        (lambda s: s.update(device_kind="abacus"), "the device was abacus and is"),
        (lambda s: s["environment"].update(NPROC="77"), "NPROC was 77 and is not set now"),
        (lambda s: s["environment"].update(XLA_FLAGS="--xla_old"), "XLA_FLAGS was --xla_old and is"),
    ],
)
def test_each_difference_that_changes_bits_is_reported(tmp_path, monkeypatch, change, sentence):
    monkeypatch.delenv("NPROC", raising=False)
    system = system_info()
    change(system)
    run_directory.write_start_files(tmp_path, CONFIG, "", system)
    (found,) = system_differences(tmp_path, "brax")
    assert found.startswith(sentence)
    assert found.endswith("the resumed run may differ in its last bits.")


def test_harmless_difference_is_not_reported(tmp_path):
    system = system_info()
    system["environment"]["JAX_COMPILATION_CACHE_DIR"] = "/elsewhere"
    system["versions"]["craftax"] = "1"
    run_directory.write_start_files(tmp_path, CONFIG, "", system)
    assert system_differences(tmp_path, "brax") == []


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_missing_or_damaged_system_file_is_reported(tmp_path, content):
    if content is not None:
        (tmp_path / "system.json").write_text(content)
    (found,) = system_differences(tmp_path, "brax")
    assert "system.json is missing or damaged" in found
