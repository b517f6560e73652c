"""The tables and the plot of the results of host_speed.py."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any


def speed_of(line: dict[str, Any]) -> float:
    return statistics.median(line["steps_per_second"])


def compared_with_marks(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table of marks."""
    lines = []
    for key, row in results.items():
        for name, mark in row["marks"].items():
            fit = {label: v for label, v in row["ours"].items() if v["mark"] == name and not v["apart"]}
            label = max(fit, key=lambda one: fit[one]["ratio"])
            lines.append(
                {
                    "title": mark["title"],
                    "ours": f"{statistics.median(fit[label]['steps_per_second']):,.0f} ({label})",
                    "theirs": f"{statistics.median(best_of(row)['steps_per_second']):,.0f} ({row['best_peer']})",
                    "figure": f"{fit[label]['ratio']:.2f}×",
                    "rounds": " ".join(f"{x:.2f}" for x in fit[label]["ratios"]),
                    "asked": f"{mark['asked']:g}×",
                    "aim": f"{mark['aim']:g}×",
                    "verdict": verdict(fit[label]["ratio"] >= mark["asked"], fit[label]["ratio"] >= mark["aim"]),
                }
            )
        if key == "cartpole":
            lines.append(share_line(row))
        if "peak_megabytes" in best_of(row):
            lines.append(memory_line(row))
    return lines


def share_line(row: dict[str, Any]) -> dict[str, Any]:
    label, variant = next(iter(row["ours"].items()))
    rest = statistics.median(variant["rest"])
    return {
        "title": "CartPole-v1: share of the wall time not spent on environment, policy and update",
        "ours": label,
        "theirs": "–",
        "figure": f"{rest:.1%}",
        "rounds": " ".join(f"{x:.1%}" for x in variant["rest"]),
        "asked": "under 15 %",
        "aim": "under 8 %",
        "verdict": verdict(rest < 0.15, rest < 0.08),
    }


def memory_line(row: dict[str, Any]) -> dict[str, Any]:
    label, variant = next(iter(row["ours"].items()))
    mine, theirs = (statistics.median(record["peak_megabytes"]) for record in (variant, best_of(row)))
    first = variant["first_start"].get("peak_megabytes")
    return {
        "title": "Pong: peak memory of all processes (PSS)",
        "ours": f"{mine:,.0f} MB ({label}; first start, which compiles: {first:,.0f} MB)",
        "theirs": f"{theirs:,.0f} MB ({row['best_peer']})",
        "figure": f"{mine / theirs:.2f}×",
        "rounds": " ".join(
            f"{a / b:.2f}" for a, b in zip(variant["peak_megabytes"], best_of(row)["peak_megabytes"], strict=True)
        ),
        "asked": "no more",
        "aim": "half",
        "verdict": verdict(mine <= theirs, mine <= theirs / 2),
    }


def verdict(asked: bool, aim: bool) -> str:
    return "aim" if aim else "mark" if asked else "missed"


def tables(results: dict[str, Any]) -> str:
    """Markdown: the table of marks, then a table of all programs of each row."""
    lines = ["| | proximo | Peer | Ratio | Rounds | Mark | Aim | Met |", "|---|---|---|---|---|---|---|---|"]
    for mark in compared_with_marks(results):
        names = ("title", "ours", "theirs", "figure", "rounds", "asked", "aim", "verdict")
        lines.append("| " + " | ".join(mark[name] for name in names) + " |")
    for row in results.values():
        lines += ["", f"**{row['title']}** ({row['date']}, {row['rounds']} rounds of {row['seconds']:g} s)", ""]
        lines += ["| Program | Steps/s | Ratio | Rounds |" + (" Peak MB |" if "peak_megabytes" in best_of(row) else "")]
        lines += ["|---|---|---|---|" + ("---|" if "peak_megabytes" in best_of(row) else "")]
        for label, speed, ratio, rounds, memory, _ in programs_of(row):
            shown = " ".join(f"{x:.2f}" for x in rounds)
            lines.append(f"| {label} | {speed:,.0f} | {ratio:.2f} | {shown} |" + (f" {memory:,.0f} |" if memory else ""))
    return "\n".join(lines)


def best_of(row: dict[str, Any]) -> dict[str, Any]:
    """The mode of the peer to which ratios are relative."""
    return row["peers"][row["best_peer"]]


def programs_of(row: dict[str, Any]) -> list[tuple[str, float, float, list[float], float, str]]:
    """(label, steps/s, ratio, ratios of the rounds, peak megabytes or 0, kind) of every program: those of
    proximo first, then the peer's modes by speed."""
    entries = []
    for label, v in row["ours"].items():
        memory = statistics.median(v.get("peak_megabytes", [0]))
        kind = "behind" if v["apart"] else "ours"
        entries.append((f"proximo: {label}", statistics.median(v["steps_per_second"]), v["ratio"], v["ratios"], memory, kind))
    for label, p in sorted(row["peers"].items(), key=lambda item: -item[1]["ratio"]):
        memory = statistics.median(p.get("peak_megabytes", [0]))
        kind = "best" if label == row["best_peer"] else "peer"
        shown = f"{label} (once)" if "once" in p else label
        rounds = [] if kind == "best" else p["ratios"]
        entries.append((shown, statistics.median(p["steps_per_second"]), p["ratio"], rounds, memory, kind))
    return entries


COLORS = {"ours": "#2563a8", "behind": "#9fc2e6", "best": "#444444", "peer": "#b5b5b5"}


def plot(results: dict[str, Any], path: Path) -> None:
    """Bars of ratios for each row, with the rounds as dots; then the shares of CartPole and the memory of Pong."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels: list[tuple[int, Any]] = [(len(programs_of(row)), (draw_ratios, row)) for row in results.values()]
    if "cartpole" in results:
        shares = {n: v["shares"] for n, v in results["cartpole"]["ours"].items() if not v["apart"] and "shares" in v}
        panels.append((len(shares) + 1, (draw_shares, shares)))
    panels += [(len(programs_of(row)), (draw_memory, row)) for row in results.values() if "peak_megabytes" in best_of(row)]
    width, bar, between, left, right = 11.0, 0.24, 0.75, 3.0, 0.3  # inches
    whole = sum(bar * count + between for count, _ in panels) + 0.5
    figure = plt.figure(figsize=(width, whole))
    top = whole - 0.35
    for count, (draw, data) in panels:
        bottom = top - 0.3 - bar * count
        axis = figure.add_axes((left / width, bottom / whole, (width - left - right) / width, bar * count / whole))
        top -= bar * count + between
        draw(axis, data)
        axis.invert_yaxis()
        axis.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    title = "proximo compared with Stable-Baselines3 and Gymnasium (dark blue: proximo; pale blue: proximo with learner_lag=1; grey: peers)"
    figure.text(0.5, 1 - 0.22 / whole, title, ha="center", fontsize=10)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_ratios(axis: Any, row: dict[str, Any]) -> None:
    entries = programs_of(row)
    axis.barh(range(len(entries)), [e[2] for e in entries], color=[COLORS[e[5]] for e in entries], height=0.7)
    edge = max([e[2] for e in entries] + [m["aim"] for m in row["marks"].values()] + [x for e in entries for x in e[3]])
    for place, (_, speed, ratio, rounds, _, _) in enumerate(entries):
        axis.plot(rounds, [place] * len(rounds), "o", color="black", markersize=3.5, clip_on=False)
        text = f"{ratio:.2f}× · {speed:,.0f}/s"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # no line through the figures
        axis.text(max([ratio, *rounds]) + 0.015 * edge, place, text, va="center", fontsize=8, bbox=box)
    for name, mark in row["marks"].items():
        fit = [place for place, e in enumerate(entries) if e[0].startswith("proximo: ") and mark_of(row, e[0]) == name]
        for figure, style in ((mark["asked"], "-"), (mark["aim"], ":")):
            axis.plot([figure] * 2, [min(fit) - 0.5, max(fit) + 0.5], style, color="#c0392b", linewidth=1.3)
    axis.axvline(1.0, color="#444444", linewidth=0.8)
    axis.set_yticks(range(len(entries)), [e[0] for e in entries], fontsize=8)
    axis.set_xlim(0, edge * 1.22)
    axis.set_title(f"{row['title']}: steps/s over those of {row['best_peer']}  (red: mark, dotted: aim)", fontsize=9, loc="left")


def mark_of(row: dict[str, Any], label: str) -> str:
    return row["ours"][label.removeprefix("proximo: ")]["mark"]


def draw_shares(axis: Any, shares: dict[str, dict[str, float]]) -> None:
    colors = {"environment": "#5b8c5a", "policy": "#2563a8", "update": "#d08a2c", "rest": "#c0392b"}
    for place, parts in enumerate(shares.values()):
        left = 0.0
        for name, color in colors.items():
            axis.barh(place, parts.get(name, 0.0), left=left, color=color, height=0.7, label=name if place == 0 else None)
            left += parts.get(name, 0.0)
        axis.text(left + 0.01, place, f"rest {parts['rest']:.1%}", va="center", fontsize=8)
    axis.set_yticks(range(len(shares)), list(shares), fontsize=8)
    axis.set_xlim(0, 1.3)
    axis.legend(ncols=4, fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)
    axis.set_title("CartPole-v1: where the wall time goes", fontsize=9, loc="left")


def draw_memory(axis: Any, row: dict[str, Any]) -> None:
    entries = programs_of(row)
    axis.barh(range(len(entries)), [e[4] for e in entries], color=[COLORS[e[5]] for e in entries], height=0.7)
    for place, entry in enumerate(entries):
        axis.text(entry[4] * 1.01, place, f" {entry[4]:,.0f} MB", va="center", fontsize=8)
    axis.set_yticks(range(len(entries)), [e[0] for e in entries], fontsize=8)
    axis.set_xlim(0, max(e[4] for e in entries) * 1.15)
    axis.set_title(f"{row['title']}: peak memory of all processes", fontsize=9, loc="left")
