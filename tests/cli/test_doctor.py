"""``proximo doctor`` tells whether training would work here, and what stands in the way."""

import json

from proximo import jax_setup
from proximo.cli import doctor, main


def test_json_is_one_object_and_this_machine_is_healthy(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "TRIAL_UPDATES", 1)
    prepared, machine = [], doctor._machine
    monkeypatch.setattr(jax_setup, "prepare_jax", lambda: prepared.append("before JAX starts"))
    monkeypatch.setattr(doctor, "_machine", lambda: (list(machine()), prepared[0])[0])
    assert main(["doctor", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    report = json.loads(out)
    assert report["healthy"] is True
    assert prepared == ["before JAX starts"]
    checks = {check["name"]: check for check in report["checks"]}
    assert set(checks) == {"device", "threads", "compilation cache", "training"}
    assert checks["training"]["steps_per_second"] > 0
    assert report["system"]["versions"]["jax"]


def test_each_problem_is_reported_with_its_fix(monkeypatch, capsys, tmp_path):
    import jax

    (tmp_path / "file").write_text("")
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("NPROC", "1")
    monkeypatch.setattr(doctor, "_training", lambda: ("training", True, "fine", {}))
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "file" / "cache"))
        assert main(["doctor"]) == 1
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    out = capsys.readouterr().out
    assert "FAIL  threads: the CPU runtime has 1 threads: JAX may hang with fewer than 4: set NPROC=4" in out
    assert "cannot be written to: set PROXIMO_CACHE_DIR" in out
    assert "ok    device" in out
