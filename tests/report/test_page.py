"""The files of a report: the page loads nothing, and no name can become markup or a formula in them."""

import contextlib
import csv
import json
import re
from unittest import mock

import numpy as np
import pytest

from made_runs import made_group, made_rows, made_run, write_rows
from proximo.errors import ProximoError
from proximo.report import write_report
from proximo.report.page import Markup, escaped
from proximo.tracking.histograms import Histogram

EVIL = '<img src=x onerror="alert(1)">&"\'$x_1$'


def reported(paths, by=(), picture=False):
    with contextlib.nullcontext() if picture else mock.patch("proximo.report.figures.draw"):
        return write_report(list(map(str, paths)), paths[0].parent, by, out=paths[0].parent / "report")


def text_of(page):
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))


@pytest.fixture
def groups(tmp_path):
    return [made_group(tmp_path / name, memory=name, name=name) for name in ("gru", "lstm")]


def loads(text):
    """Addresses that the page would fetch."""
    found = re.findall(r"""(?:src|href|poster|action)\s*=\s*["']?([^"'\s>]+)""", text) + re.findall(r"url\(([^)]*)\)", text)
    found += re.findall(r"https?://[^\s\"'<]+|@import|import\s*\(|fetch\(|XMLHttpRequest", text)
    return [address for address in found if not address.startswith(("data:", "#"))]


def test_page_contains_every_curve_and_loads_nothing(groups):
    page = reported(groups).html.read_text()
    assert loads(page) == []
    assert "default-src 'none'" in page
    [section] = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert section["groups"] == ["gru", "lstm"]
    assert [chart["title"] for chart in section["charts"]] == ["Evaluation return", "Training return"]
    curves = [line["y"] for line in section["charts"][1]["step"]["groups"][0]["lines"]]
    assert [len(y) for y in curves] == [len(section["charts"][1]["step"]["x"])] * 4
    assert section["charts"][1]["step"]["x"][-1] == 20_480
    assert all(map(loads, ('<script src="//x/y.js">', "<a href=http://x>", "background: url(x.png)", "fetch('x')")))


def test_text_of_users_is_escaped_everywhere(tmp_path):
    run = made_run(tmp_path / "<b>r&", env_settings={EVIL: EVIL}, levels="</script><i>")
    other = made_run(tmp_path / "other", env_settings={EVIL: "b"}, seed=1)
    (run / "command.txt").write_text(EVIL)
    (run / "failure.txt").write_text("</ul><script>alert(1)</script>")
    page = reported([run, other]).html.read_text()
    assert not re.search("<img src=x|<script>alert|<b>r&", page)
    assert "&lt;img src=x onerror=&quot;" in page
    assert page.count("</script>") == 2
    assert (escaped('<"'), escaped(Markup("<b>")), escaped(None)) == ("&lt;&quot;", "<b>", "")


def test_a_title_names_what_is_shown(groups, tmp_path):
    other = made_run(tmp_path / "a", env="gymnax:Acrobot-v1")
    for paths, title in (
        (groups[:1], "gru on gymnax:CartPole-v1"),
        (groups, "8 runs on gymnax:CartPole-v1"),
        ([groups[0] / "seed-1"], "gru/seed-1 on gymnax:CartPole-v1"),
        ([*groups, other], "9 runs on 2 environments"),
    ):
        assert f"<h1>{title}</h1>" in reported(paths).html.read_text()


def test_page_and_csv_show_how_runs_ended_and_differ(groups):
    text = text_of(reported(groups).html.read_text())
    assert "Settings that differ Group memory gru gru lstm lstm" in text
    common = text[text.index("Settings in common") :]
    assert "num_steps 128 128" in common
    assert " memory " not in common
    assert "gamma=0.99: its runs differ in memory." in text_of(reported(groups, ["gamma"]).html.read_text())
    write_rows(groups[0] / "seed-0", made_rows(10, 100, 0))
    write_rows(groups[0] / "seed-1", [])
    (groups[0] / "seed-1" / "failure.txt").write_text("NaN in the loss.")
    write_rows(groups[0] / "seed-2", [])
    report = reported(groups, picture=True)
    notices = [text_of(notice).strip() for notice in re.findall(r"<li>(.*?)</li>", report.html.read_text())]
    assert notices[:3] == [
        "gru/seed-0: interrupted at 50% (10,240 of 20,480 steps).",
        "gru/seed-1: failed at 0% (0 of 20,480 steps). NaN in the loss.",
        "gru/seed-2: not started (0 of 20,480 steps).",
    ]
    assert notices[3:] == report.warnings
    assert len(report.warnings) == 2
    assert "4 (1 interrupted, 1 failed, 1 not started)" in report.html.read_text()
    failed = [line for line in report.csv.read_text().splitlines() if ",failed," in line]
    assert failed == ["gymnax:CartPole-v1,gru/seed-1,gru,1,0,,failed,1"]


def test_the_csv_has_every_value_as_it_was_measured(groups):
    rows = list(csv.DictReader(reported(groups).csv.read_text().splitlines()))
    assert list(rows[0]) == ["environment", "run", "group", "seed", "step", "seconds", "metric", "value"]
    measured = map(json.loads, (groups[1] / "seed-2" / "metrics.jsonl").read_text().splitlines())
    expected = [(row["step"], name, row[name]) for row in measured for name in row if name != "step" and row[name] is not None]
    found = [row for row in rows if row["run"] == "lstm/seed-2"]
    assert [(int(row["step"]), row["metric"], float(row["value"])) for row in found] == expected
    assert {(row["group"], row["seed"]) for row in found} == {("lstm", "2")}


def test_no_name_is_a_formula_in_the_csv_or_the_picture(tmp_path):
    odd = [made_run(tmp_path / name, gamma=0.9 + i / 100, eval_episodes=0) for i, name in enumerate(("_r$", "$\\frac$", "^{"))]
    run, heights = made_run(tmp_path / "=HYPERLINK(1)", env="@SUM(1)", updates=2), []
    for paths in (odd, [*odd, run]):
        report = reported(paths, ["name"], picture=True)
        assert report.png.read_bytes()[:4] == b"\x89PNG"
        heights.append(int.from_bytes(report.png.read_bytes()[20:24]))
    assert heights[1] > 1.8 * heights[0], "the picture grows with the environments"
    assert "\n'@SUM(1),'=HYPERLINK(1),'=HYPERLINK(1),0," in report.csv.read_text()


@pytest.mark.parametrize(
    ("rows", "which", "by", "sentence"),
    [
        ("", "", (), r"No run has metrics yet \(.*/r\): wait for the first update, or check whether training was stopped\."),
        ("nonsense\n{}\n", "", (), "metrics.jsonl is damaged: line 1 is not a row of metrics"),
        ('{"step": 1}', "@best", (), "'.*r@best': a report is about whole runs, not checkpoints: omit @"),
        ('{"step": 1}', "", ["network.memry"], r"Unknown setting 'memry' for --by \(did you mean 'memory'\?\)"),
        ('{"step": 1}', "", ["lr"], "lr is called learning_rate here"),
        ('{"step": 1}', "", ["env_settings.none"], "Unknown setting 'env_settings.none' for --by"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, rows, which, by, sentence):
    (made_run(tmp_path / "r") / "metrics.jsonl").write_text(rows)
    with pytest.raises(ProximoError, match=sentence):
        write_report([f"{tmp_path}/r{which}"], tmp_path, by)


def test_page_shows_histograms_of_the_returns_of_episodes(tmp_path):
    run = made_run(tmp_path / "run")
    assert "Returns of episodes" not in reported([run]).html.read_text()
    returns = {1024: [0.0, 0.0, 10.0, 100.0], 2048: [100.0] * 4}
    rows = [{"step": step, "histograms/episode_returns": Histogram.of(np.array(x)).as_json()} for step, x in returns.items()]
    (run / "histograms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"step": 4096}]))
    picture = reported([run]).html.read_text().partition("Returns of episodes")[2].partition("</svg>")[0]
    shades = re.findall(r'<path d="([^"]*)" fill-opacity="([\d.]+)"', picture)
    assert len(shades) == 5
    assert re.findall(r"M(\d+) (\d+)h", shades[-1][0]) == [("0", "39"), ("1", "0")], "the most frequent returns of each column"
    assert re.findall(r"M(\d+) (\d+)h", shades[2][0]) == [("0", "35"), ("0", "0")], "half as frequent"
    assert "2,048 environment steps" in picture
