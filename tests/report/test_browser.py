"""The page in a browser: headless Chromium, where there is one."""

import html
import json
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


def opened(page, folder, width=1280, before="", first=""):
    """The document after its script has run, and what the browser has complained of. ``first`` runs before that script, ``before`` behind it."""
    if before or first:
        # A script of the test's own needs the page's policy out of its way.
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
        page = folder / "scripted.html"
        text = text.replace("<head>", f"<head><script>{first}</script>", 1)
        page.write_text(text.replace("</body>", f"<script>{before}</script></body>"), encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", f"--user-data-dir={folder / 'profile'}"]
    words += ["--enable-logging=stderr", "--virtual-time-budget=30000", "--dump-dom", page.as_uri()]
    ended = subprocess.run([CHROMIUM, *words], capture_output=True, text=True, timeout=120, check=True)
    return ended.stdout, [line for line in ended.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_is_drawn_without_an_error(report, tmp_path, width):
    text, complaints = opened(report, tmp_path, width)
    assert complaints == []
    charts = re.findall(r'<figure class="chart.*?</figure>', text, re.DOTALL)
    assert f'data-drawn="{len(charts)}"' in text
    assert len(charts) == 4
    assert all('class="line g0' in chart for chart in charts)
    assert sum('class="band g1"' in chart for chart in charts) == 2
    assert "<title>9 runs on 2 environments</title>" in text


def test_charts_are_drawn_without_a_resize_event(report, tmp_path):
    blind = "window.ResizeObserver = class { observe() {} }"
    text, _ = opened(report, tmp_path, before="document.title = document.body.dataset.drawn", first=blind)
    assert "<title>4</title>" in text


def test_an_error_of_the_script_would_be_seen(report, tmp_path):
    assert opened(report, tmp_path, before="nothing.there()")[1] != []


def test_nothing_is_wider_than_a_phone(report, tmp_path):
    told = "setTimeout(() => { document.title = document.documentElement.scrollWidth + ' of ' + innerWidth }, 500)"
    text, _ = opened(report, tmp_path, 390, before=told)
    wide, of = map(int, re.search(r"<title>(\d+) of (\d+)</title>", text).groups())
    assert wide <= of


def moved(axis="step", hide=""):
    """A script that chooses an axis, hides a group, and puts the pointer upon the first chart."""
    return f"""setTimeout(() => {{
        const choice = document.querySelector('input[value={axis}]');
        choice.checked = true; choice.dispatchEvent(new Event('change'));
        {hide}
        const svg = document.querySelector('figure.chart svg'), box = svg.getBoundingClientRect();
        svg.dispatchEvent(new PointerEvent('pointermove',
            {{ clientX: box.left + box.width - 20, clientY: box.top + 5, pointerType: 'mouse', bubbles: true }}));
    }}, 300)"""


def tip(text):
    return html.unescape(re.sub("<[^>]+>", "|", re.search(r'<div class="tip"[^>]*>(.*?)</div>', text, re.DOTALL)[1]))


def test_a_pointer_reads_the_last_values_with_their_intervals(report, tmp_path):
    text, complaints = opened(report, tmp_path, before=moved())
    assert complaints == []
    assert "20,480 steps" in tip(text)
    assert re.search(r"memory=gru: [\d.]+ \[[\d.]+, [\d.]+\], 4 runs", tip(text))
    assert "memory=lstm" in tip(text)


def test_a_tooltip_stays_within_its_chart(report, tmp_path):
    said = """setTimeout(() => {
        const [tip, chart] = ['.tip', 'svg'].map((name) => document.querySelector('figure.chart ' + name).getBoundingClientRect());
        document.title = ['top', 'left'].map((side) => tip[side] >= chart[side] - 1) + ',' +
            ['bottom', 'right'].map((side) => tip[side] <= chart[side] + 1);
    }, 600);"""
    text, _ = opened(report, tmp_path, 700, before=moved() + ";" + said)
    assert "<title>true,true,true,true</title>" in text


def test_axis_switches_to_wall_time_and_groups_can_be_hidden(report, tmp_path):
    text, complaints = opened(report, tmp_path, before=moved("seconds", "document.querySelector('button.chip').click();"))
    assert complaints == []
    assert "4.1 s" in tip(text)
    assert "memory=gru" not in tip(text)
    assert "memory=lstm" in tip(text)
    assert "seconds of training" in text


def test_axis_labels_are_exact_and_distinct_shares_end_at_one(report, tmp_path):
    told = """setTimeout(() => {
        const axes = [[0, 2.5e-4, 5e-4, 7.5e-4, 1e-3], [0, 2.5e-5, 5e-5], [0, 250000, 500000, 750000, 1e6], [1000100, 1000150, 1000200],
            [-0.2, 0, 0.2], [0.9925, 0.995, 0.9975], [42], []];
        const top = (most, y) => extent([{ lines: [{ x: [1, 2], y }] }], { chart: { most } }).high;
        const tops = [top(1, [0.2, 1]), top(1, [1, 1]), top(null, [0, 1]), top(1, [0, 0.5])];
        document.title = JSON.stringify([axes.map(labels), tops]);
    }, 300)"""
    text, complaints = opened(report, tmp_path, before=told)
    assert complaints == []
    labels, tops = json.loads(html.unescape(re.search("<title>(.*?)</title>", text)[1]))
    assert labels == [
        ["0", "0.00025", "0.0005", "0.00075", "0.001"],
        ["0", "2.5e-5", "5e-5"],
        ["0", "250k", "500k", "750k", "1M"],
        ["1.0001M", "1.00015M", "1.0002M"],
        ["-0.2", "0", "0.2"],
        ["0.9925", "0.995", "0.9975"],
        ["42"],
        [],
    ]
    assert tops == pytest.approx([1, 1, 1.05, 0.525])
