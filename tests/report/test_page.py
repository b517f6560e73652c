"""The page is whole by itself, and what users have named cannot become markup in it."""

import json
import re
from datetime import datetime

import numpy as np
import pytest

from made_runs import made_group, made_rows, made_run, write_rows
from proximo.report import episode_returns, figure, page, panels, tidy
from proximo.report.build import not_drawn
from proximo.report.curves import all_curves
from proximo.report.grouping import Section, sections_of
from proximo.report.markup import Markup, tag
from proximo.report.read import read_runs
from proximo.tracking.histograms import Histogram

EVIL = '<img src=x onerror="alert(1)">&"\'$x_1$'


def rendered(paths, by=()):
    sections = sections_of(read_runs(map(str, paths), paths[0].parent), by)
    drawn = [all_curves(section, 300) for section in sections]
    return page.render(sections, drawn, datetime(2026, 1, 2, 3, 4))


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


@pytest.fixture
def groups(tmp_path):
    return [made_group(tmp_path / name, memory=name, name=name) for name in ("gru", "lstm")]


def test_page_contains_every_curve_over_both_axes(groups):
    data = data_of(rendered(groups))
    [section] = data["sections"]
    assert section["groups"] == ["gru", "lstm"]
    assert [chart["title"] for chart in section["charts"]] == ["Evaluation return", "Training return"]
    for chart in section["charts"]:
        for group in chart["groups"]:
            assert [len(line[axis]) for line in group["lines"] for axis in ("step", "seconds")] == [
                len(line["y"]) for line in group["lines"] for _ in range(2)
            ]
            assert set(group["middles"]) == {"step", "seconds"}


def loads(text):
    """Addresses that the page would fetch."""
    found = re.findall(r"""(?:src|href|poster|action)\s*=\s*["']?([^"'\s>]+)""", text) + re.findall(r"url\(([^)]*)\)", text)
    found += re.findall(r"https?://[^\s\"'<]+|@import|import\s*\(|fetch\(|XMLHttpRequest", text)
    return [address for address in found if not address.startswith(("data:", "#"))]


def test_nothing_is_loaded_from_outside(groups):
    assert loads(rendered(groups)) == []
    assert "default-src &#x27;none&#x27;" in rendered(groups)


@pytest.mark.parametrize("evil", ['<script src="//x/y.js">', "<a href=http://x>", "background: url(x.png)", "fetch('x')"])
def test_a_load_from_outside_would_be_found(evil):
    assert loads(evil)


def test_text_of_users_is_escaped_everywhere(tmp_path):
    run = made_run(tmp_path / "<b>r&", env_settings={EVIL: EVIL}, levels="</script><i>")
    other = made_run(tmp_path / "other", env_settings={EVIL: "b"}, seed=1)
    (run / "command.txt").write_text(EVIL)
    (run / "failure.txt").write_text("</ul><script>alert(1)</script>")
    text = rendered([run, other])
    assert "<img src=x" not in text
    assert "<script>alert" not in text
    assert "<b>r&" not in text
    assert "&lt;img src=x onerror=&quot;" in text
    assert text.count("</script>") == 2
    assert EVIL in data_of(text)["sections"][0]["groups"][0]


def test_a_title_names_what_is_shown(groups, tmp_path):
    assert "<h1>gru on gymnax:CartPole-v1</h1>" in rendered(groups[:1])
    assert "<h1>8 runs on gymnax:CartPole-v1</h1>" in rendered(groups)
    assert "<h1>gru/seed-1 on gymnax:CartPole-v1</h1>" in rendered([groups[0] / "seed-1"])
    other = made_run(tmp_path / "a", env="gymnax:Acrobot-v1")
    text = rendered([*groups, other])
    assert "<h1>9 runs on 2 environments</h1>" in text
    assert text.count("<section") == 2


def test_status_of_incomplete_runs_is_shown(groups):
    write_rows(groups[0] / "seed-0", made_rows(10, 100, 0))
    write_rows(groups[0] / "seed-1", made_rows(5, 100, 0))
    (groups[0] / "seed-1" / "failure.txt").write_text("NaN in the loss.")
    (groups[0] / "seed-2" / "metrics.jsonl").unlink()
    text = rendered(groups)
    notices = re.findall(r"<li>(.*?)</li>", text)
    assert [re.sub("<[^>]+>", "", notice).strip() for notice in notices] == [
        "gru/seed-0: interrupted at 50% (10,240 of 20,480 steps).",
        "gru/seed-1: failed at 25% (5,120 of 20,480 steps). NaN in the loss.",
        "gru/seed-2: not started (0 of 20,480 steps).",
    ]
    assert "1 interrupted, 1 failed, 1 not started, 1 finished" in text


def test_differing_and_common_settings_are_listed_separately(groups):
    text = rendered(groups)
    differing = text[text.index("Settings that differ") : text.index("All runs")]
    assert "<th>memory</th>" in differing
    assert ">lstm</td>" in differing
    common = text[text.index("Settings in common") :]
    assert re.search(r"<td[^>]*>num_steps</td><td[^>]*>128</td><td[^>]*>128</td>", common)
    assert ">memory<" not in common


def test_text_that_is_not_markup_is_escaped():
    assert tag("p", "<", Markup("<b>"), None, ["&", 3], class_='a"b', hidden=True, id=None) == (
        '<p class="a&quot;b" hidden>&lt;<b>&amp;3</p>'
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (3.21, "3.2 s"), (119.4, "119 s"), (185, "3:05 min"), (7800, "2:10 h")]
)
def test_durations_read_as_a_clock(seconds, text):
    assert panels.duration(seconds) == text


def test_the_csv_has_every_value_as_it_was_measured(groups, tmp_path):
    import csv

    sections = sections_of(read_runs(map(str, groups), tmp_path))
    tidy.write_csv(tmp_path / "t.csv", sections)
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["environment", "run", "group", "seed", "step", "seconds", "metric", "value"]
    found = [row for row in rows if (row["run"], row["metric"]) == ("lstm/seed-2", "rollout/return_mean")]
    lines = map(json.loads, (groups[1] / "seed-2" / "metrics.jsonl").read_text().splitlines())
    expected = [(row["step"], row["rollout/return_mean"]) for row in lines if row.get("rollout/return_mean") is not None]
    assert [(int(row["step"]), float(row["value"])) for row in found] == expected
    assert {(row["group"], row["seed"]) for row in found} == {("lstm", "2")}


def test_no_name_is_a_formula_in_the_csv(tmp_path):
    made_run(tmp_path / "=HYPERLINK(1)", env="@SUM(1)", updates=2)
    tidy.write_csv(tmp_path / "t.csv", sections_of(read_runs([str(tmp_path / "=HYPERLINK(1)")], tmp_path)))
    for line in (tmp_path / "t.csv").read_text().splitlines()[1:]:
        assert line.startswith("'@SUM(1),'=HYPERLINK(1),'=HYPERLINK(1),0,")


def test_page_and_csv_include_seeds_that_failed_without_measurements(groups, tmp_path):
    (groups[0] / "seed-1" / "failure.txt").write_text("NaN in the loss.")
    write_rows(groups[0] / "seed-1", [])
    write_rows(groups[0] / "seed-2", [])
    text = re.sub("<[^>]+>", " ", rendered(groups))
    assert re.search(r"1 failed without a result; each counts as \d", text)
    assert "1 without a result, not counted" in text
    lines = list(tidy.lines(sections_of(read_runs(map(str, groups), tmp_path))))
    assert [line for line in lines if ",failed," in line] == ["gymnax:CartPole-v1,gru/seed-1,gru,1,0,,failed,1\n"]


def drawn(folder, paths, by=()):
    sections = sections_of(read_runs(map(str, paths), folder), by)
    figure.draw(folder / "drawn.png", sections, [all_curves(section, 300) for section in sections])
    return (folder / "drawn.png").read_bytes()


def test_the_picture_is_drawn_whatever_the_runs_are_called(tmp_path):
    odd = [made_run(tmp_path / name, gamma=0.9 + i / 100, eval_episodes=0) for i, name in enumerate(("_r$", "$\\frac$", "^{"))]
    assert drawn(tmp_path, odd, ["name"])[:4] == b"\x89PNG"
    assert drawn(tmp_path, odd[1:2])[:4] == b"\x89PNG"


def test_the_picture_grows_with_the_environments(tmp_path):
    paths = [made_group(tmp_path / "g"), made_run(tmp_path / "r", env="gymnax:Acrobot-v1")]
    one, two = (int.from_bytes(drawn(tmp_path, paths[:n])[20:24]) for n in (1, 2))
    assert two > 1.8 * one


@pytest.mark.parametrize(("metric", "charts"), [("rollout/success_rate", 1), ("train/loss", 0)])
def test_run_without_a_finished_episode_has_page_and_picture(tmp_path, metric, charts):
    run_dir = made_run(tmp_path / "r")
    write_rows(run_dir, [{"step": 1024, metric: 0.5, "rollout/return_mean": None}])
    assert rendered([run_dir]).count('<figure class="chart') == charts
    assert drawn(tmp_path, [run_dir])[:4] == b"\x89PNG"


def test_environments_omitted_from_the_picture_are_reported():
    sections = [Section(f"env-{i}", [], []) for i in range(14)]
    assert not_drawn(sections) == ["report.png shows only the first 12 environments; the page also shows env-12, env-13."]
    assert not_drawn(sections[:12]) == []


def test_page_shows_histograms_of_the_returns_of_episodes(tmp_path):
    run = made_run(tmp_path / "run")
    assert "Returns of episodes" not in rendered([run])
    early, late = (Histogram.of(np.array(values)) for values in ([0.0, 0.0, 10.0, 100.0], [100.0] * 4))
    rows = [{"step": step, episode_returns.NAME: h.as_json()} for step, h in ((1024, early), (2048, late)) if h]
    (run / "histograms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"step": 4096}]))
    picture = rendered([run]).partition("Returns of episodes")[2].partition("</svg>")[0]
    darkest = picture.partition('fill-opacity="1.0"')[0].rpartition("<path")[2]
    assert "M0 39h" in darkest, "half of the early episodes have the lowest return"
    assert "M1 0h" in darkest, "all late episodes have the highest return"
    assert "2,048 environment steps" in picture
    [shares, _] = episode_returns.shares({0: [early], 1: [late]}, early.low, late.high)
    assert (shares[0], shares[4], shares.sum()) == (0.5, 0.25, 1.0)
