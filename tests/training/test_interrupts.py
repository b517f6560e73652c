"""Ctrl-C, SIGTERM, kill -9 and a hanging runtime: what was learned is kept, and the process ends in time."""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import proximo
from commands import BATCH, GRU, SMALL, Process, ended_at_once, final_state, pressed_twice, rows, train_words, trained
from proximo.cli import main
from proximo.errors import TrainingError
from proximo.storage import checkpoint, run_lookup
from proximo.training import interrupts
from proximo.training.backends import JaxBackend
from proximo.training.events import PeriodicEvaluation
from proximo.training.interrupts import AbandonedError, HungError, Interrupts

LONG = {"total_steps": 10_000_000, "eval_episodes": 0}
BRAKED = "odd_envs:Braked"


def stopped_while(file):
    """A function that runs until ``file`` is there."""

    def wait():
        while not file.exists():
            time.sleep(0.01)
        return "done"

    return wait


def test_signal_lets_the_call_finish_and_is_reported_once(tmp_path):
    requests, before = [], [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts(lambda: (requests.append(1), (tmp_path / "go").touch())) as guard:
        os.kill(os.getpid(), signal.SIGTERM)
        assert guard.call(stopped_while(tmp_path / "go")) == "done"
        assert guard.call(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            guard.call(divmod, 7, 0)
        assert guard.requested == signal.SIGTERM
    assert requests == [1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_call_that_outlasts_its_grace_is_abandoned(tmp_path, monkeypatch):
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


def test_hangup_ignored_by_nohup_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as guard:
            signal.raise_signal(signal.SIGHUP)
            assert guard.call(divmod, 7, 2) == (3, 1)
            assert guard.requested is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_call_without_cpu_time_is_a_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(interrupts, "STILL_SECONDS", 0.7)

    def compute():
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            sum(range(1000))
        return "done"

    with Interrupts() as guard:
        assert guard.call(compute) == "done"
        with pytest.raises(HungError, match="has hung: no CPU time was used"):
            guard.call(stopped_while(tmp_path / "go"))
        assert guard.call(lambda: time.sleep(1.0) or "waited", is_computing=lambda: False) == "waited"
    assert issubclass(HungError, TrainingError)
    (tmp_path / "go").touch()


def braked(tmp_path, before="", **settings):
    """A file that slows the steps of a training; the run directory and the process of that training."""
    brake, run_dir = tmp_path / "brake", tmp_path / "odd_envs-Braked" / "r"
    words = train_words(tmp_path, "r", BRAKED, **{**LONG, "checkpoint_every": 50 * BATCH, **settings})
    return brake, run_dir, Process(*words, before=before, BRAKE=str(brake))


@pytest.mark.slow
def test_update_longer_than_the_grace_is_dropped(tmp_path):
    brake, run_dir, process = braked(tmp_path, updates_per_call=1)
    with process:
        process.wait_for(lambda: checkpoint.steps(run_dir / "checkpoints"))
        brake.touch()  # from now on an update takes 6.4 s, which the training knows after the next one
        before = checkpoint.steps(run_dir / "checkpoints")[-1]
        time.sleep(2)
        slow = rows(run_dir)[-1]["step"]
        # The second one, because the brake may have slowed only a part of the first.
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


def test_hanging_short_call_leaves_the_last_checkpoint(tmp_path):
    brake, run_dir, process = braked(tmp_path, "from proximo.training import interrupts\ninterrupts.GRACE_SECONDS = 1.0")
    with process:
        process.wait_for(lambda: checkpoint.steps(run_dir / "checkpoints"))
        brake.write_text("for ever")
        time.sleep(0.5)
        process.send(signal.SIGTERM)
        ended = process.end(20)
    assert ended.code == 143, ended
    step = checkpoint.steps(run_dir / "checkpoints")[-1]
    assert f"Stopped at step {step:,}, saved" in ended.out


def python(program):
    """Exit code, output and seconds of a program with signals that it sends to itself."""
    imports = "import os, signal, time\nfrom proximo.training.interrupts import AbandonedError, Interrupts\n"
    command = [sys.executable, "-c", imports + textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return ended.returncode, ended.stdout, ended.stderr


def test_second_signal_ends_the_process_at_once():
    program = """
        def press():
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.3)
            time.sleep(1000)

        with Interrupts(lambda: print("stopping"), on_exit=lambda: print("bye", flush=True)) as guard:
            guard.call(press, grace=100.0)
    """
    assert python(program)[:2] == (130, "stopping\nbye\n")


def test_exit_of_python_waits_for_an_abandoned_call():
    """Otherwise its thread would end inside the compiler, which aborts the process."""
    program = """
        def compiled():
            time.sleep(1.0)
            print("returned")

        with Interrupts(owns_process=False) as guard:
            os.kill(os.getpid(), signal.SIGINT)
            try:
                guard.call(compiled, grace=0.0)
            except AbandonedError:
                print("abandoned", flush=True)
    """
    assert python(program)[:2] == (0, "abandoned\nreturned\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_before_the_first_seed_is_the_exit_code(tmp_path, monkeypatch, number, code):
    """If nothing is compiled, the training may notice the signal only before its first update."""
    entered = Interrupts.__enter__
    monkeypatch.setattr(Interrupts, "__enter__", lambda self: (entered(self), self.request(number))[0])
    monkeypatch.setattr("os._exit", ended_at_once)
    try:
        found = main(train_words(tmp_path, "r"))
    except SystemExit as ended:
        found = ended.code
    assert found == code
    with contextlib.suppress(KeyboardInterrupt):
        [result] = proximo.train("toys:RandomEnds", **SMALL, runs_dir=str(tmp_path), name="python", preset=False)
        assert (result.interrupted, result.steps) == (number, 0)


def interrupted_last_evaluation(patch, error=None):
    """The tenth evaluation, the last one of a seed, is interrupted, and raises the ``error``."""
    evaluate, numbers = PeriodicEvaluation._play, itertools.count(1)

    def interrupted(self, *arguments):
        if next(numbers) == 10:
            self.training.interrupts.request(signal.SIGTERM)
            if error:
                raise error
        return evaluate(self, *arguments)

    patch.setattr(PeriodicEvaluation, "_play", interrupted)


def test_signal_in_the_last_evaluation_of_a_seed_keeps_its_result(tmp_path, monkeypatch, capsys):
    interrupted_last_evaluation(monkeypatch)
    assert main([*train_words(tmp_path, "r", seeds=2, seeds_mode="serial"), "--json"]) == 143
    out, err = capsys.readouterr()
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    assert json.loads(out)["steps"] == SMALL["total_steps"]
    assert f"Stopped before seed-1. Go on with: proximo train --resume {run_dir}" in err
    assert not checkpoint.steps(run_dir / "seed-1" / "checkpoints")


def test_second_signal_still_prints_json(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("os._exit", ended_at_once)
    monkeypatch.setattr(JaxBackend, "advance", pressed_twice)
    with pytest.raises(SystemExit, match="130"):
        main([*train_words(tmp_path, "r"), "--json"])
    message = f"Stopped at once. Go on with: proximo train --resume {tmp_path / 'toys-RandomEnds' / 'r'}"
    assert json.loads(capfd.readouterr().out) == {"error": message}


@pytest.mark.parametrize(
    ("slow", "until"),
    [
        ("from proximo.training.backends import JaxBackend\nJaxBackend.prepare = lambda *_: time.sleep(1e6)", "compiling…"),
        # Short sleeps: a signal that arrives just before a long one would be noticed only at its end.
        ("def _(*_, **__):\n print('here', file=sys.stderr, flush=True)\n while True:\n  time.sleep(0.01)\n"
         "import proximo.settings\nproximo.settings.make_config = _", "here"),
    ],
)  # fmt: skip
def test_interrupt_before_the_first_update_still_prints_json(tmp_path, slow, until):
    # A shell that runs this in the background has its children ignore Ctrl-C.
    handler = "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    with Process(*train_words(tmp_path, "r"), "--json", before=f"{handler}\n{slow}") as process:
        while until not in (line := process.process.stderr.readline()):
            assert line
        process.send(signal.SIGINT)
        ended = process.end(30)
    assert ended.code == 130, ended
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    stopped = f"Stopped before the first update. Go on with: proximo train --resume {run_dir}"
    assert json.loads(ended.out) == {"error": stopped if until == "compiling…" else "interrupted."}


def test_resume_repeats_an_interrupted_last_evaluation(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupted_last_evaluation(patch, AbandonedError())
        patch.setattr("os._exit", ended_at_once)
        with pytest.raises(SystemExit, match="143"):
            main(train_words(tmp_path, "r"))
    run_dir = tmp_path / "toys-RandomEnds" / "r"
    message = f"Stopped at step 640, the last one, not evaluated yet, saved. Go on with: proximo train --resume {run_dir}"
    assert message in capsys.readouterr().out
    assert main(["train", "--resume", str(run_dir)]) == 0
    whole = trained(tmp_path, "s")
    assert (final_state(run_dir), rows(run_dir)) == (final_state(whole), rows(whole))
    assert main(["train", "--resume", str(run_dir)]) == 2, "now it is complete"


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_resume_after_kill_9_equals_the_uninterrupted_run(tmp_path, kills):
    """A recurrent training that mostly saves is killed at random moments again and again, then completes."""
    settings = {"total_steps": 250 * kills * BATCH, "eval_every": 100 * BATCH, "updates_per_call": 1, "keep_checkpoints": 2}
    settings |= GRU
    draw, leftovers, steps_saved = random.Random(kills), [], []
    words, run_dir = train_words(tmp_path, "r", **settings, checkpoint_every=BATCH), tmp_path / "toys-RandomEnds" / "r"
    for _ in range(kills):
        with Process(*words) as process:
            newest = checkpoint.steps(run_dir / "checkpoints")[-1:]
            process.wait_for(lambda newest=newest: checkpoint.steps(run_dir / "checkpoints")[-1:] != newest)
            time.sleep(draw.uniform(0, 0.3))
            process.send(signal.SIGKILL)
            ended = process.end()
        assert ended.code == -signal.SIGKILL, ended
        leftovers += [path.name.split("-")[0] for path in (run_dir / "checkpoints").glob(".*")]
        steps_saved.append(run_lookup.load_newest(run_dir / "checkpoints")[0].step)
        words = ["train", "--resume", str(run_dir)]
    assert steps_saved == sorted(set(steps_saved)), "a resumed run did not continue"
    assert main([*words, "--checkpoint-every", str(100 * BATCH)]) == 0
    whole = trained(tmp_path, "whole", **settings)
    assert final_state(run_dir) == final_state(whole)
    assert rows(run_dir) == rows(whole), "a row was lost or written twice"
    assert kills < 20 or ".saving" in leftovers
