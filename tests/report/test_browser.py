"""The page in a browser: headless Chromium, where it is installed."""

import html
import re
import shutil
import subprocess

import pytest

from made_runs import made_group, made_run
from proximo.report import write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
EVIL = "<img src=x onerror=document.title='evil'>"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two groups on one environment, one run with a wild name on another."""
    folder = tmp_path_factory.mktemp("runs")
    paths = [made_group(folder / name, memory=name) for name in ("gru", "lstm")]
    paths.append(made_run(folder / EVIL.replace("/", ""), env="gymnax:Acrobot-v1"))
    return write_report(list(map(str, paths)), folder, out=folder / "report").html


def opened(page, folder, script="", width=1280):
    """The document after its script and ``script`` have run, and the messages of the console."""
    if script:
        # The page's policy would not run a script of the test.
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
        page = folder / "scripted.html"
        page.write_text(
            text.replace("</body>", f"<script>setTimeout(() => {{ {script} }}, 300)</script></body>"), encoding="utf-8"
        )
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", f"--user-data-dir={folder / 'profile'}"]
    words += ["--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom", page.as_uri()]
    ended = subprocess.run([CHROMIUM, *words], capture_output=True, text=True, timeout=120, check=True)
    return ended.stdout, [line for line in ended.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("width", [1280, 500])
def test_every_chart_is_drawn_within_the_window_without_an_error(report, tmp_path, width):
    text, messages = opened(report, tmp_path, "document.title += document.documentElement.scrollWidth <= innerWidth", width)
    assert messages == []
    charts = re.findall(r'<figure class="chart.*?</figure>', text, re.DOTALL)
    assert len(charts) == 4
    assert all('class="line g0' in chart and "environment steps" in chart for chart in charts)
    assert sum('class="band g1"' in chart for chart in charts) == 2
    assert "<title>9 runs on 2 environmentstrue</title>" in text


def test_an_error_of_the_script_would_be_seen(report, tmp_path):
    assert opened(report, tmp_path, "nothing.there()")[1] != []


POINT = """
    const svg = document.querySelector('figure.chart svg'), box = svg.getBoundingClientRect();
    svg.dispatchEvent(new PointerEvent('pointermove',
        { clientX: box.left + box.width - 20, clientY: box.top + 5, pointerType: 'mouse', bubbles: true }));
"""
KEYS = """
    const svg = document.querySelector('figure.chart svg');
    for (let i = 0; i < 9; i++) svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
"""
SECONDS = """
    const choice = document.querySelector('input[value=seconds]');
    choice.checked = true; choice.dispatchEvent(new Event('change'));
"""
HIDE = "document.querySelector('button.chip').click();"


def tip(text):
    return html.unescape(re.sub("<[^>]+>", "|", re.search(r'<div class="tip"[^>]*>(.*?)</div>', text, re.DOTALL)[1]))


@pytest.mark.parametrize("script", [HIDE + HIDE + POINT, KEYS])
def test_pointer_and_keys_read_the_last_values_with_their_intervals(report, tmp_path, script):
    text, messages = opened(report, tmp_path, script)
    assert messages == []
    assert re.search(r"20,480 steps.*memory=gru: [\d.]+ \[[\d.]+, [\d.]+\], 4 runs", tip(text))
    assert "memory=lstm" in tip(text)


def test_axis_switches_to_wall_time_and_groups_can_be_hidden_and_shown(report, tmp_path):
    text, messages = opened(report, tmp_path, SECONDS + HIDE + POINT)
    assert messages == []
    assert "4.096 s" in tip(text)
    assert "memory=gru" not in tip(text)
    assert "memory=lstm" in tip(text)
    assert "seconds of training" in text
