"""Ctrl-C, SIGTERM, kill -9 and a runtime that hangs: what was learned is kept, and the end comes in time."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from commands import BATCH, Process, ended_at_once, final_state, pressed_twice, rows, train_words, trained
from proximo.cli import main
from proximo.errors import TrainingError
from proximo.run import checkpoint, interrupts
from proximo.run.interrupts import AbandonedError, HungError, Interrupts
from proximo.run.program import Program

LONG = {"total_steps": 10_000_000, "eval_episodes": 0}
BRAKED = "odd_envs:Braked"


def stopped_while(file):
    """A function that runs until ``file`` is there."""

    def wait():
        while not file.exists():
            time.sleep(0.01)
        return "done"

    return wait


def test_a_call_gives_its_result_or_raises_its_error():
    with Interrupts() as guard:
        assert guard.call(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            guard.call(divmod, 7, 0)
    assert guard.requested is None


def test_a_signal_lets_the_call_finish_and_is_told_once(tmp_path):
    told = []
    with Interrupts(lambda: (told.append(1), (tmp_path / "go").touch())) as guard:
        os.kill(os.getpid(), signal.SIGTERM)
        assert guard.call(stopped_while(tmp_path / "go")) == "done"
        assert guard.call(divmod, 7, 2) == (3, 1)
        assert guard.requested == signal.SIGTERM
    assert told == [1]


def test_a_call_that_outlasts_its_grace_is_abandoned(tmp_path, monkeypatch):
    monkeypatch.setattr(interrupts, "GRACE_SECONDS", 0.5)
    with Interrupts() as guard:
        os.kill(os.getpid(), signal.SIGINT)
        started = time.monotonic()
        with pytest.raises(AbandonedError):
            guard.call(stopped_while(tmp_path / "go"))
        assert 0.4 < time.monotonic() - started < 3
        with pytest.raises(AbandonedError):
            guard.call(stopped_while(tmp_path / "go"), grace=0.0)
    (tmp_path / "go").touch()


def test_the_handlers_of_others_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] != before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_hangup_that_nohup_has_set_aside_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as guard:
            signal.raise_signal(signal.SIGHUP)
            assert guard.call(divmod, 7, 2) == (3, 1)
            assert guard.requested is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_call_that_uses_no_cpu_time_is_a_hang_and_one_that_computes_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(interrupts, "STILL_SECONDS", 0.7)

    def compute():
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            sum(range(1000))
        return "done"

    with Interrupts() as guard:
        assert guard.call(compute) == "done"
        with pytest.raises(HungError, match="has hung: no CPU time was used"):
            guard.call(stopped_while(tmp_path / "go"))
    assert issubclass(HungError, TrainingError)
    (tmp_path / "go").touch()


def test_waiting_for_environments_is_not_hanging(monkeypatch):
    monkeypatch.setattr(interrupts, "STILL_SECONDS", 0.5)
    with Interrupts() as guard:
        assert guard.call(lambda: time.sleep(1.5) or "slept", computes=lambda: False) == "slept"
        with pytest.raises(HungError):
            guard.call(lambda: time.sleep(3.0))


def test_a_process_that_was_stopped_itself_does_not_count_as_hung(monkeypatch):
    watch = interrupts._CpuWatch()
    now = time.monotonic()
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now + 1000)  # as after Ctrl-Z and fg
    watch.check(True)
    assert watch._since == now + 1000, "the waiting begins anew"
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now + 1001)
    watch.check(True)


def braked(tmp_path, **settings):
    """A training whose steps can be slowed down by the file that is returned; its run directory; its process."""
    brake, run_dir = tmp_path / "brake", tmp_path / "odd_envs-Braked" / "r"
    words = train_words(tmp_path, "r", BRAKED, **{**LONG, "checkpoint_every": 50 * BATCH, **settings})
    return brake, run_dir, Process(*words, BRAKE=str(brake))


def hanging(tmp_path):
    """The directory and the process of a training that has saved, and whose step has then hung for a second."""
    brake, run_dir, process = braked(tmp_path)
    process.wait_for(lambda: checkpoint.steps(run_dir / "checkpoints"))
    brake.write_text("for ever")
    time.sleep(1)
    return run_dir, process


@pytest.mark.slow
def test_an_update_longer_than_the_grace_is_dropped_and_the_last_border_saved(tmp_path):
    brake, run_dir, process = braked(tmp_path, updates_per_call=1)
    with process:
        process.wait_for(lambda: checkpoint.steps(run_dir / "checkpoints"))
        brake.touch()  # from now on an update takes 6.4 s, and after the next one they are known to
        before = checkpoint.steps(run_dir / "checkpoints")[-1]
        time.sleep(2)
        slow = rows(run_dir)[-1]["step"]
        # The second one from here: the brake may have come into the first in its midst.
        process.wait_for(lambda: rows(run_dir)[-1]["step"] >= slow + 2 * BATCH)
        brake.write_text("for ever")
        time.sleep(3)
        process.send(signal.SIGINT)
        started = time.monotonic()
        ended = process.end()
        assert time.monotonic() - started < 10
    assert ended.code == 130, ended
    assert f"Go on with: proximo train --resume {run_dir}" in ended.out
    step = checkpoint.steps(run_dir / "checkpoints")[-1]
    assert f"Stopped at step {step:,}, saved" in ended.out
    assert step > before
    assert rows(run_dir)[-1]["step"] == step


def test_a_call_expected_to_be_short_that_hangs_leaves_the_last_checkpoint(tmp_path):
    run_dir, process = hanging(tmp_path)
    with process:
        process.send(signal.SIGTERM)
        ended = process.end(20)
    assert ended.code == 143, ended
    step = checkpoint.steps(run_dir / "checkpoints")[-1]
    assert f"Stopped at step {step:,}, saved" in ended.out


def test_a_second_signal_ends_the_process_at_once(tmp_path):
    _, process = hanging(tmp_path)
    with process:
        process.send(signal.SIGINT)
        process.read_until("stopping: the running update is finished and saved first (Ctrl-C again: at once)")
        process.send(signal.SIGINT)
        started = time.monotonic()
        assert process.end().code == 130
        assert time.monotonic() - started < 2


def test_a_second_signal_leaves_json_an_object(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("os._exit", ended_at_once)
    monkeypatch.setattr(Program, "advance", pressed_twice)
    with pytest.raises(SystemExit, match="130"):
        main([*train_words(tmp_path, "r"), "--json"])
    said = f"Stopped at once. Go on with: proximo train --resume {tmp_path / 'toys-RandomEnds' / 'r'}"
    assert json.loads(capfd.readouterr().out) == {"error": said}


@pytest.mark.parametrize(
    ("slow", "until"),
    [
        ("from proximo.run.program import Program\nProgram._compile = lambda *_: time.sleep(1e6)", "compiling…"),
        ("def _(*_, **__):\n print('here', file=sys.stderr, flush=True)\n time.sleep(1e6)\n"
         "import proximo.run\nproximo.run.make_config = _", "here"),
    ],
)  # fmt: skip
def test_an_interrupt_before_the_first_update_leaves_json_an_object(tmp_path, slow, until):
    # A shell that runs this in the background has its children ignore Ctrl-C.
    heeding = "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    with Process(*train_words(tmp_path, "r"), "--json", before=f"{heeding}\n{slow}") as process:
        while until not in (line := process.process.stderr.readline()):
            assert line
        process.send(signal.SIGINT)
        ended = process.end(30)
    assert ended.code == 130, ended
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    stopped = f"Stopped before the first update. Go on with: proximo train --resume {run_dir}"
    assert json.loads(ended.out) == {"error": stopped if until == "compiling…" else "interrupted."}


def test_an_interrupt_while_compiling_ends_at_once_and_the_run_begins_again(tmp_path, capsys):
    slow = "from proximo.run.program import Program\nimport time\nProgram._compile = lambda *_: time.sleep(1e6)"
    with Process(*train_words(tmp_path, "r"), before=slow) as process:
        process.read_until("compiling…")
        process.send(signal.SIGINT)
        started = time.monotonic()
        ended = process.end()
        assert time.monotonic() - started < 3
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    assert ended.code == 130, ended
    assert f"Stopped before the first update. Go on with: proximo train --resume {run_dir}" in ended.out
    assert main(["train", "--resume", str(run_dir)]) == 0
    assert "no checkpoint was saved yet" in capsys.readouterr().out
    assert final_state(run_dir) == final_state(trained(tmp_path, "s"))


def test_an_interrupted_last_evaluation_is_made_up_for_by_a_resume(tmp_path):
    endless = """
from proximo.run import interrupts
from proximo.run.evaluation import Evaluator
import time
interrupts.GRACE_SECONDS = 0.3
real, count = Evaluator.__call__, [0]
def call(self, *arguments):
    count[0] += 1
    if count[0] == 10:
        print("the last evaluation", flush=True)
        time.sleep(1e6)
    return real(self, *arguments)
Evaluator.__call__ = call
"""
    with Process(*train_words(tmp_path, "r"), before=endless) as process:
        process.read_until("the last evaluation")
        process.send(signal.SIGTERM)
        ended = process.end()
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    assert ended.code == 143, ended
    assert (
        f"Stopped at step 640, the last one, not evaluated yet, saved. Go on with: proximo train --resume {run_dir}" in ended.out
    )
    assert main(["train", "--resume", str(run_dir)]) == 0
    whole = trained(tmp_path, "s")
    assert (final_state(run_dir), rows(run_dir)) == (final_state(whole), rows(whole))
    assert main(["train", "--resume", str(run_dir)]) == 2, "now it is complete"


def test_a_hung_runtime_ends_the_training_with_the_last_checkpoint_named(tmp_path):
    impatient = "from proximo.run import interrupts\ninterrupts.STILL_SECONDS = 3.0"
    brake, run_dir = tmp_path / "brake", tmp_path / "odd_envs-Braked" / "r"
    words = train_words(tmp_path, "r", BRAKED, **LONG, checkpoint_every=50 * BATCH)
    with Process(*words, before=impatient, BRAKE=str(brake)) as process:
        process.wait_for(lambda: checkpoint.steps(run_dir / "checkpoints"))
        brake.write_text("for ever")
        ended = process.end(30)
    assert ended.code == 1, ended
    assert "proximo: JAX's CPU runtime has hung" in ended.err
    assert "Traceback" not in ended.err
    checkpoint.newest_valid(run_dir / "checkpoints")


def kill_at_random_moments(tmp_path, kills, seed):
    """Kill one training again and again, most of whose time goes into saving; then let it end. Its directory, that of the
    uninterrupted one, and what crashed saves had left behind."""
    settings = {"total_steps": 250 * kills * BATCH, "eval_every": 100 * BATCH, "updates_per_call": 1, "keep_checkpoints": 2}
    draw = random.Random(seed)
    words, run_dir = train_words(tmp_path, "r", **settings, checkpoint_every=BATCH), tmp_path / "toys-RandomEnds" / "r"
    left_behind, stood_at = [], []
    for _ in range(kills):
        with Process(*words) as process:
            newest = checkpoint.steps(run_dir / "checkpoints")[-1:]
            process.wait_for(lambda newest=newest: checkpoint.steps(run_dir / "checkpoints")[-1:] != newest)
            time.sleep(draw.uniform(0, 0.3))
            process.send(signal.SIGKILL)
            ended = process.end()
        assert ended.code == -signal.SIGKILL, ended
        left_behind += [path.name.split("-")[0] for path in (run_dir / "checkpoints").glob(".*")]
        stood_at.append(int(checkpoint.newest_valid(run_dir / "checkpoints")[0].name))
        words = ["train", "--resume", str(run_dir)]
    assert stood_at == sorted(set(stood_at)), "a resumed run did not go on"
    assert main([*words, "--checkpoint-every", str(100 * BATCH)]) == 0
    return run_dir, trained(tmp_path, "whole", **settings), left_behind


def test_after_kill_9_a_run_goes_on_to_the_bits_of_the_uninterrupted_one(tmp_path):
    run_dir, whole, _ = kill_at_random_moments(tmp_path, kills=2, seed=0)
    assert final_state(run_dir) == final_state(whole)
    assert rows(run_dir) == rows(whole), "a row was lost or written twice"


@pytest.mark.slow
def test_after_kill_9_at_twenty_moments_some_inside_a_save_a_run_goes_on(tmp_path):
    run_dir, whole, left_behind = kill_at_random_moments(tmp_path, kills=20, seed=1)
    assert final_state(run_dir) == final_state(whole)
    assert rows(run_dir) == rows(whole), "a row was lost or written twice"
    assert ".saving" in left_behind


def test_the_end_of_python_waits_for_a_call_that_was_left_behind():
    """Torn out of the compiler, its thread would abort the process."""
    program = """
import os, signal, time
from proximo.run.interrupts import AbandonedError, Interrupts

def compiled():
    time.sleep(1.0)
    print("came back")

with Interrupts(owns_process=False) as guard:
    os.kill(os.getpid(), signal.SIGINT)
    try:
        guard.call(compiled, grace=0.0)
    except AbandonedError:
        print("left behind", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "left behind\ncame back\n"), ended.stderr
