"""What a person sees: a bar on a terminal, a line every ten seconds elsewhere, nothing when it is to be quiet."""

import contextlib
import errno
import io
import os
import pty
import re
import threading
from pathlib import Path

import pytest
from rich.console import Console

from commands import SMALL, Process, rows, train_words
from proximo.cli import console_reporters
from proximo.cli import training_reporters as module
from proximo.cli.training_reporters import LineReporter, LiveReporter, make_reporter
from proximo.config import Config, override
from proximo.tracking import progress
from proximo.tracking.lasting_stream import lasting
from proximo.tracking.progress_displays import NO_SCREEN
from proximo.training.seed_run import Result

CONFIG = override(
    Config(), {**{k: v for k, v in SMALL.items() if k != "tensorboard"}, "id": "toys:RandomEnds", "total_steps": 3200}
)
FACTS = {
    "observation": "Box(3,) float32", "action": "Discrete(2)", "network": "MLP 8 tanh", "parameters": 1234,
    "batch": "4 environments × 8 steps = 32", "updates": 100, "preprocessed": "", "normalized": "observations and rewards", "device": "cpu, 2 cores", "seeds": "in one program",
}  # fmt: skip
RUN = Path("runs/e/r")
SUMMARY = {"return_mean": 12.34}


def result(**changes):
    values = {
        "run_dir": RUN,
        "steps": 3200,
        "seconds": 65.0,
        "compile_seconds": 4.21,
        "steps_per_second": 49.2,
        "evaluation_seconds": 9.2,
        "return_mean": 12.34,
        "evaluation": {"step": 3200, "episodes": 4, "return_mean": 12.34},
        "best": {"step": 3200, "return_mean": 12.34},
    }
    return Result(**{**values, **changes})


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is set."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def plain():
    """A reporter of plain lines, and what it has printed."""
    stream = io.StringIO()
    return LineReporter(Console(file=stream, soft_wrap=True)), stream


def test_banner_shows_spaces_network_batch_device_and_directory(plain):
    reporter, stream = plain
    reporter.started(CONFIG, [RUN], {**FACTS, "preprocessed": "levels 0:9"})
    assert stream.getvalue().splitlines() == [
        " environment  toys:RandomEnds: Box(3,) float32 → Discrete(2)",
        "     network  MLP 8 tanh: 1,234 parameters",
        "       batch  4 environments × 8 steps = 32",
        "    training  3,200 steps in 100 updates, seed 0",
        "    settings  learning rate 3e-4, γ 0.99, λ 0.95, clip 0.2, entropy 0.0",
        "preprocessed  levels 0:9",
        "  normalized  observations and rewards",
        "      device  cpu, 2 cores",
        "         run  runs/e/r",
    ]


def test_a_line_every_ten_seconds_and_compiling_first(plain, clock):
    reporter, stream = plain
    reporter.started(CONFIG, [RUN], FACTS)
    reporter.seeds_started([RUN], 0)
    stream.truncate(stream.seek(0))
    reporter.compiling()
    clock[0] += 4.2
    reporter.compiled("")
    reporter.compiling()
    assert stream.getvalue() == "compiling…\ncompiled in 4.2 s\n"
    for second in range(1, 36):
        clock[0] += 1
        reporter.advanced(32 * second, 32.0, 5.0 + second)
        if second == 15:
            reporter.evaluated(32 * second, [SUMMARY, {"return_mean": 10.0}])
    lines = stream.getvalue().splitlines()[2:]
    assert lines == [
        "step 352 of 3,200 · return 16.0 · 32 steps/s · 1:29 left · evaluated –",
        "step 672 of 3,200 · return 26.0 · 32 steps/s · 1:19 left · evaluated 11.2",
        "step 992 of 3,200 · return 36.0 · 32 steps/s · 1:09 left · evaluated 11.2",
    ]


def test_the_end_gives_the_result_and_the_next_commands(plain, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    reporter, stream = plain
    reporter.started(CONFIG, [RUN], FACTS)
    stream.truncate(stream.seek(0))
    reporter.finished([result()])
    assert stream.getvalue().splitlines() == [
        "mean return 12.3 (4 greedy episodes) after 3,200 steps in 1:05 (49 steps/s), evaluated in 0:09, compiled in 0:04",
        "Next:  proximo watch runs/e/r",
        "       proximo eval runs/e/r --episodes 100",
        "       proximo report runs/e/r",
        "       proximo export runs/e/r",
        "       tensorboard --logdir runs/e/r   # after: pip install tensorboard",
    ]


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, ""),
        ({"eval_env": "proximo:PocMemory"}, " --env proximo:PocMemory"),
        ({"eval_env_settings": {"levels": "held_out", "view": 5}}, " --env-settings levels=held_out,view=5"),
    ],
)
def test_the_next_commands_play_in_the_environment_of_the_training_evaluations(plain, settings, flags):
    reporter, stream = plain
    reporter.started(override(CONFIG, settings), [RUN], FACTS)
    reporter.finished([result()])
    assert f"Next:  proximo watch runs/e/r{flags}\n       proximo eval runs/e/r{flags} --episodes 100\n" in stream.getvalue()


@pytest.mark.parametrize(
    ("best", "lines"),
    [
        (None, []),
        ({"step": 3200, "return_mean": 12.34}, []),
        ({"step": 65536, "return_mean": 43.0}, ["best: 43.0 at step 65,536 (runs/e/r@best)"]),
    ],
)
def test_best_evaluation_is_reported_if_it_was_not_the_last(plain, best, lines):
    reporter, stream = plain
    reporter.started(CONFIG, [RUN], FACTS)
    reporter.finished([result(best=best)])
    assert [line for line in stream.getvalue().splitlines() if "best" in line] == lines
    reporter.finished([result(best=best, return_mean=None)])


def test_a_result_without_evaluations_is_that_of_training_episodes(plain):
    reporter, stream = plain
    reporter.started(CONFIG, [RUN], FACTS)
    reporter.finished([result(evaluation=None)])
    assert "mean return 12.3 (training episodes) after 3,200 steps" in stream.getvalue()
    reporter.finished([result(evaluation={"step": 1600, "episodes": 1, "return_mean": 12.34})])
    assert "mean return 12.3 (1 greedy episode at step 1,600) after 3,200 steps" in stream.getvalue()


def test_several_seeds_end_with_their_mean_and_spread(plain):
    reporter, stream = plain
    reporter.started(CONFIG, [RUN / "seed-0", RUN / "seed-1"], FACTS)
    reporter.finished([result(return_mean=10.0, seeds_together=2), result(return_mean=20.0, seeds_together=2)])
    assert (
        "2 seeds: mean return 15.0 ± 5.00 (standard deviation). All seeds together: 98 steps/s" in stream.getvalue().splitlines()
    )


def test_mean_over_seeds_reports_failed_seeds(plain):
    reporter, stream = plain
    reporter.started(CONFIG, [RUN / f"seed-{i}" for i in range(4)], FACTS)
    reporter.finished([result(return_mean=480.0), result(return_mean=500.0)])
    reporter.finished([result(return_mean=480.0)])
    told = "(standard deviation); the {} that failed are not included, but `proximo report` counts them. All seeds together: 49 steps/s"
    assert [line for line in stream.getvalue().splitlines() if "of 4 seeds" in line] == [
        f"2 of 4 seeds: mean return 490.0 ± 10.0 {told.format(2)}",
        f"1 of 4 seeds: mean return 480.0 ± 0.00 {told.format(3)}",
    ]


def test_interrupted_run_reports_how_to_resume_instead_of_a_result(plain):
    reporter, stream = plain
    reporter.started(CONFIG, [RUN], FACTS)
    stream.truncate(stream.seek(0))
    reporter.stopping()
    reporter.stopped("Stopped at step 32, saved. Go on with: x")
    reporter.finished([result(interrupted=2)])
    assert stream.getvalue().splitlines() == [
        "stopping after the current update, which will be saved (press Ctrl-C again to stop at once)",
        "Stopped at step 32, saved. Go on with: x",
    ]


def test_resumed_run_counts_steps_from_its_start(plain):
    reporter, stream = plain
    reporter.started(CONFIG, [RUN], {**FACTS, "resumed_at": 3000})
    reporter.seeds_started([RUN], 3000)
    reporter.advanced(3200, 100.0, None)
    assert reporter.line().startswith("step 3,200 of 3,200")
    reporter.finished([result(resumed_at=3000)])
    assert "mean return 12.3 (4 greedy episodes) after 3,200 steps, 200 of them now, in 1:05 (" in stream.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0.00"), (0.9531, "0.953"), (-0.00021, "-0.00021"), (-9.8765, "-9.88"), (9.999, "10.0"), (21.54, "21.5"), (-1234.5, "-1,234.5"), (12345.6, "12,346")],
)  # fmt: skip
def test_small_returns_have_enough_digits(value, text):
    assert progress.number(value) == text


def test_serial_seeds_are_named_and_waiting_ones_add_remaining_time(plain, clock):
    reporter, stream = plain
    seeds = [RUN / f"seed-{i}" for i in range(3)]
    reporter.started(CONFIG, seeds, {**FACTS, "seeds": "one after the other"})
    reporter.seeds_started(seeds[:1], 0)
    reporter.seeds_started(seeds[1:2], 0)
    reporter.advanced(1600, 100.0, None)
    assert reporter.line() == "seed-1 · step 1,600 of 3,200 · return – · 100 steps/s · 0:48 left · evaluated –"
    reporter.finished([result(run_dir=seed) for seed in seeds])
    assert "3 seeds (one after the other)" in stream.getvalue()
    assert "runs/e/r/seed-2: mean return 12.3" in stream.getvalue()
    assert "Next:  proximo watch runs/e/r\n" in stream.getvalue()
    assert "       proximo export runs/e/r/seed-0\n" in stream.getvalue(), "a policy is of one seed"


def test_vmapped_seeds_share_the_speed(plain, clock):
    reporter, _ = plain
    seeds = [RUN / f"seed-{i}" for i in range(3)]
    reporter.started(CONFIG, seeds, FACTS)
    reporter.seeds_started(seeds, 0)
    reporter.advanced(1600, 300.0, None)
    assert reporter.line().startswith("step 1,600 of 3,200")
    assert "0:16 left" in reporter.line()


def test_markup_in_a_name_is_printed_as_it_is(plain):
    reporter, stream = plain
    reporter.warned("[red]name[/red] 3")
    assert stream.getvalue() == "warning: [red]name[/red] 3\n"


def test_quiet_prints_only_warnings_and_early_stops_on_stderr(capsys):
    stream = io.StringIO()
    with make_reporter(stream, quiet=True) as reporter:
        reporter.started(CONFIG, [RUN], FACTS)
        reporter.seeds_started([RUN], 0)
        reporter.compiling()
        reporter.advanced(32, 1.0, 1.0)
        reporter.evaluated(32, [SUMMARY])
        reporter.stopping()
        reporter.finished([result()])
        assert capsys.readouterr() == ("", "")
        reporter.warned("odd")
        reporter.stopped("Stopped.")
    assert capsys.readouterr() == ("", "warning: odd\nStopped.\n")
    assert stream.getvalue() == ""


class Screen:
    """What a terminal of 80 columns shows: cursor movements and erased lines are obeyed."""

    def __init__(self):
        self.stream = io.StringIO()
        self.console = Console(file=self.stream, force_terminal=True, width=80, height=24, soft_wrap=True, highlight=False,
                               color_system=None, legacy_windows=False, _environ={})  # fmt: skip

    @property
    def raw(self):
        return self.stream.getvalue()

    def lines(self):
        rows, y, x = [""], 0, 0
        for part in re.findall(r"\x1b\[[?0-9;]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", self.raw):
            if part == "\n":
                y, x = y + 1, 0
                rows += [""] * (y + 1 - len(rows))
            elif part == "\r":
                x = 0
            elif part.startswith("\x1b"):
                count = int(re.sub(r"\D", "", part) or 1)
                if part.endswith("A"):
                    y -= count
                elif part.endswith("K"):
                    rows[y] = "" if part == "\x1b[2K" else rows[y][:x]
            else:
                rows[y] = rows[y][:x].ljust(x) + part + rows[y][x + len(part) :]
                x += len(part)
        return [row.rstrip() for row in rows]


def test_live_bar_shows_compiling_then_training_and_clears_itself(clock):
    screen = Screen()
    with LiveReporter(screen.console) as reporter:
        reporter.started(CONFIG, [RUN], FACTS)
        reporter.seeds_started([RUN], 0)
        reporter.compiling()
        clock[0] += 72
        reporter.bar.update()
        assert screen.lines()[-1].startswith("compiling… 1:12 ━━━")
        reporter.advanced(1600, 100.0, 21.5)
        reporter.evaluating()
        assert screen.lines()[-1].startswith("evaluating… 0:00 ━━━")
        reporter.evaluated(1600, [SUMMARY])
        clock[0] += 60
        reporter.advanced(1632, 100.0, 21.5)
        bar, figures = screen.lines()[-1].strip().split(" ", 1)
        assert set(bar) <= set("━╸╺")
        assert len(bar) > 5
        assert figures.strip() == "1,632 (51%) · return 21.5 · eval 12.3 · 100 steps/s · 0:16 left"
        assert max(map(len, screen.lines())) <= 80
        reporter.stopping()
        assert screen.lines()[-1].startswith("stopping… 0:00 ━")
        reporter.finished([result()])
    end = screen.lines()
    assert not any("━" in line for line in end)
    assert "run  runs/e/r" in end[7]
    assert end[8].startswith("mean return 12.3")
    assert screen.raw.count("\x1b[?25l") == screen.raw.count("\x1b[?25h") == 1, "the cursor is hidden and shown again"


def test_failed_training_clears_the_bar_and_restores_the_cursor(clock):
    screen = Screen()

    def fail():
        with LiveReporter(screen.console) as reporter:
            reporter.started(CONFIG, [RUN], FACTS)
            reporter.warned("something odd")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "warning: something odd" in screen.lines()
    assert not any("━" in line for line in screen.lines())
    assert screen.raw.count("\x1b[?25l") == screen.raw.count("\x1b[?25h") == 1


VARIABLES = ("NO_COLOR", "FORCE_COLOR", "TERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", *NO_SCREEN)
ERASE, COLOUR = "\x1b[2K", re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def shown(monkeypatch, terminal, **environment):
    """What a training prints on a terminal of its own or into a pipe, and the kind of its reporter."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    reading, writing = pty.openpty() if terminal else os.pipe()
    pieces: list[bytes] = []

    def read():
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(reading, 1 << 16):
                pieces.append(piece)

    reader = threading.Thread(target=read)
    reader.start()  # at once: what nobody reads is soon waited for
    with os.fdopen(writing, "w") as stream:
        assert stream.isatty() == terminal
        with make_reporter(stream, quiet=False) as reporter:
            reporter.started(CONFIG, [RUN], FACTS)
            reporter.seeds_started([RUN], 0)
            reporter.compiling()
            reporter.warned("odd")
            for step in range(32, 3200, 32):
                reporter.advanced(step, 100.0, 21.5)
                if isinstance(reporter, LiveReporter):
                    reporter.bar.update()
            reporter.finished([result()])
    reader.join(30)
    os.close(reading)
    return type(reporter), b"".join(pieces).decode()


def test_terminal_gets_a_colored_bar_that_is_redrawn(monkeypatch):
    kind, text = shown(monkeypatch, terminal=True)
    assert kind is LiveReporter
    assert ERASE in text
    assert COLOUR.search(text)


def test_no_color_removes_the_colors_and_keeps_the_bar(monkeypatch):
    for environment in ({"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        kind, text = shown(monkeypatch, terminal=True, **environment)
        assert kind is LiveReporter
        assert ERASE in text
        assert not COLOUR.search(text)
    assert COLOUR.search(shown(monkeypatch, terminal=True, NO_COLOR="")[1]), "an empty NO_COLOR is none"


PLAIN = [
    (True, {"CI": "true"}), (True, {"JPY_PARENT_PID": "77"}), (True, {"COLAB_RELEASE_TAG": "x"}), (True, {"TERM": "dumb"}),
    (False, {}), (False, {"FORCE_COLOR": "1"}), (False, {"CI": "true", "FORCE_COLOR": "1"}), (False, {"TTY_COMPATIBLE": "1"}),
]  # fmt: skip


@pytest.mark.parametrize(("terminal", "environment"), PLAIN)
def test_pipe_ci_and_notebook_get_lines_without_redraws(monkeypatch, terminal, environment):
    kind, text = shown(monkeypatch, terminal, **environment)
    assert kind is LineReporter
    assert not re.search(r"\x1b\[[0-9?]*[A-KJhl]", text), "no cursor is moved, nothing is erased"
    assert len(text.splitlines()) == 8 + 1 + 1 + 1 + 5  # banner, compiling, warning, result, what next
    asked = environment.get("FORCE_COLOR") or environment.get("TTY_COMPATIBLE")  # the latter is rich's own
    wanted = bool(asked) or (terminal and environment.get("TERM") != "dumb")
    assert bool(COLOUR.search(text)) == wanted


def test_ci_variable_set_to_false_gets_the_bar(monkeypatch):
    assert shown(monkeypatch, terminal=True, CI="false")[0] is LiveReporter


def test_notebook_gets_plain_lines_instead_of_html_output(monkeypatch):
    """As in a cell, where rich would show each line by IPython's display."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("displayed"))
    kind, text = shown(monkeypatch, terminal=False)
    assert kind is LineReporter
    assert "warning: odd" in text


LOST = "warning: the output cannot be written ({}), so nothing more is shown. The work continues; Ctrl-C stops it.\n"


@pytest.mark.parametrize(("terminal", "reason"), [(False, "Broken pipe"), (True, "Input/output error")])
def test_output_that_is_gone_is_one_warning_and_ends_nothing(monkeypatch, capsys, terminal, reason):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    reading, writing = pty.openpty() if terminal else os.pipe()
    with os.fdopen(writing, "w") as stream, make_reporter(stream, quiet=False) as reporter:
        assert isinstance(reporter, LiveReporter if terminal else LineReporter)
        os.close(reading)
        reporter.started(CONFIG, [RUN], FACTS)
        reporter.seeds_started([RUN], 0)
        reporter.compiling()
        reporter.advanced(32, 1.0, 1.0)
        reporter.warned("odd")
        reporter.stopped("Stopped.")
        reporter.finished([result()])
    assert capsys.readouterr() == ("", LOST.format(reason))


def test_output_is_shown_again_when_the_disk_has_space(capsys):
    class Full(io.StringIO):
        def write(self, text):
            if text == "lost":
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    stream = lasting(Full(), console_reporters._warn_of_stream)
    for text in ("before, ", "lost", "lost", "after"):
        stream.write(text)
    assert stream.getvalue() == "before, after"
    reason = "the output cannot be written (No space left on device), so a part of it is lost"
    assert capsys.readouterr() == ("", f"warning: {reason}. The work continues; Ctrl-C stops it.\n")


def test_training_whose_pipe_breaks_continues_to_its_end(tmp_path):
    with Process(*train_words(tmp_path, "r")) as process:
        process.read_until("environment")
        process.process.stdout.close()
        process.process.wait(300)
        assert process.process.returncode == 0
        assert process.process.stderr.read() == LOST.format("Broken pipe")
    assert rows(tmp_path / "toys-RandomEnds" / "r")[-1]["step"] == SMALL["total_steps"]
