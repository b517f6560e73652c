import json
import os

import jax
import pytest

from proximo.config import Config
from proximo.storage import run_directory
from proximo.storage.system_info import system_differences, system_info

DIFFER = "the resumed run may differ in its last bits."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["versions"].update(jax="0.0.1"), "jax was 0.0.1 and is"),
        (lambda s: s["versions"].update(brax="0.1"), "brax was 0.1 and is"),
        (lambda s: s.update(cpu_count=999), "the number of CPUs was 999 and is"),
        (lambda s: s.update(device_kind="abacus"), "the device was abacus and is"),
        (lambda s: s["environment"].update(NPROC="77"), "NPROC was 77 and is not set now"),
        (lambda s: s["environment"].update(XLA_FLAGS="--xla_old"), "XLA_FLAGS was --xla_old and is"),
        (lambda s: s.pop("versions"), "{}/system.json is missing or damaged"),
        (lambda s: s["versions"].update(craftax="1"), None),
        (lambda s: s["environment"].update(JAX_COMPILATION_CACHE_DIR="/elsewhere"), None),
    ],
)
def test_each_difference_that_changes_bits_is_reported(tmp_path, monkeypatch, change, sentence):
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    system = system_info()
    assert json.loads(json.dumps(system)) == system
    assert system["versions"]["jax"] == jax.__version__
    assert system["environment"]["XLA_FLAGS"].endswith(" ")
    change(system)
    run_directory.write_start_files(tmp_path, Config(), "", system)
    found = system_differences(tmp_path, "brax")
    assert (
        [text.startswith(sentence.format(tmp_path)) and text.endswith(DIFFER) for text in found] == [True]
        if sentence
        else not found
    )
    missing = [f"{tmp_path}/system.json is missing or damaged: {DIFFER}"]
    (tmp_path / "system.json").write_text("{")
    assert system_differences(tmp_path, "brax") == missing
    (tmp_path / "system.json").unlink()
    assert system_differences(tmp_path, "brax") == missing
