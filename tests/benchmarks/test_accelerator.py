"""``benchmarks/accelerator.py``: what is measured in which order, what is skipped, and its table."""

import argparse
import json
import sys
import time

import accelerator


def options(**more):
    given = {"envs": [16, 64], "cases": ["CartPole", "Nature CNN"], "purejaxrl": None, "tiny": True, "case_seconds": 100.0}
    return argparse.Namespace(**{**given, **more})


def test_small_batches_and_scaling_are_measured_first_each_case_in_its_process():
    rows = [(row["case"], row["program"], row["envs"], row["devices"]) for row in accelerator.planned(options(), devices=5)]
    both = [(case, program) for case in ("CartPole", "Nature CNN") for program in ("proximo", "PureJaxRL")]
    scaled = [("CartPole", "proximo", 32, 2), ("CartPole", "proximo", 64, 4)]
    assert rows == [*((*each, 16, 1) for each in both), *scaled, *((*each, 64, 1) for each in both)]
    row = {"case": "CartPole", "program": "proximo", "envs": 4, "devices": 1}
    found = accelerator.measured(row, options(), time.monotonic() + 120)
    assert found["steps_per_second"] > 100, found
    assert 0 < found["busy"] <= 1


def test_what_cannot_be_measured_is_a_row_with_its_reason(tmp_path, monkeypatch):
    def note(deadline=60.0, case="CartPole", program="proximo", **more):
        row = {"case": case, "program": program, "envs": 4, "devices": 1}
        return accelerator.measured(row, options(**more), time.monotonic() + deadline)["note"]

    assert note(program="PureJaxRL") == "not given (--purejaxrl)"
    assert note(program="PureJaxRL", case="Nature CNN", purejaxrl=tmp_path) == "it has no program for images"
    assert note(deadline=5) == "skipped: no time left"
    assert note(case_seconds=0.01) == "stopped after 0 s"
    monkeypatch.setattr(accelerator, "HERE", tmp_path)
    (tmp_path / "accelerator_case.py").write_text("raise ValueError('too large')")
    assert note() == "failed: ValueError: too large"


def test_table_has_ratios_and_scaling(tmp_path, monkeypatch, capsys):
    speeds = {("proximo", 1): 300.0, ("PureJaxRL", 1): 200.0, ("proximo", 2): 450.0}

    def result_of(command, limit):
        if "--case" not in command and "--repo" not in command:
            return {"device": "H100", "platform": "gpu", "devices": 2}
        devices = int(command[command.index("--devices") + 1]) if "--devices" in command else 1
        return {"steps_per_second": speeds["proximo" if "--case" in command else "PureJaxRL", devices], "peak_device_memory": 2e6}

    monkeypatch.setattr(accelerator, "result_of", result_of)
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["", "--tiny", "--cases", "CartPole", "--purejaxrl", str(tmp_path), "--out", str(out)])
    assert accelerator.main() == 0
    assert capsys.readouterr().out.splitlines()[4:] == [
        "| CartPole | 16 | 1 | proximo | 300 | 1.50 | – | – | 2 | – |  |",
        "| CartPole | 16 | 1 | PureJaxRL | 200 | – | – | – | 2 | – |  |",
        "| CartPole | 32 | 2 | proximo | 450 | – | 75 % | – | 2 | – |  |",
    ]
    assert len(json.loads(out.read_text())["rows"]) == 3
