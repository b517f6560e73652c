"""Draws the tasks: what the agent sees, what it must remember, and the result of its last step."""

from __future__ import annotations

from typing import Any

import numpy as np

from proximo.envs.canvas import AMBER, BLUE, GRAY, GREEN, PALE, PAPER, RED, SIZE, TINTS, Canvas


def poc_memory(state: Any, params: Any, ends: int) -> np.ndarray:
    """Draw the line, the agent, the goals while they are visible, and the good side."""
    cell, time, good_left = int(state.cell), int(state.time), float(state.left_goal) > 0
    over, good = abs(cell) >= ends, good_left == (cell < 0)
    shown = over or time <= int(params.show_steps)
    canvas, middle = Canvas(), SIZE / 2
    canvas.text(middle, 34, f"step {time}", 26)
    result = f"{'good' if good else 'bad'} goal reached" if over else f"goals {'shown' if shown else 'hidden'}"
    canvas.text(middle, 68, result, color=(GREEN if good else RED) if over else BLUE)
    x = [middle + 34 * k for k in range(-ends, ends + 1)]
    canvas.draw.line((x[0], 190, x[-1], 190), GRAY, 3)
    for place in x:
        canvas.disc(place, 190, 4, GRAY)
    for place, is_good in ((x[0], good_left), (x[-1], not good_left)):
        canvas.draw.rectangle((place - 26, 106, place + 26, 154), (GREEN if is_good else RED) if shown else PALE)
        canvas.text(place, 130, ("+1" if is_good else "-1") if shown else "?", 24, PAPER if shown else GRAY)
    canvas.disc(x[ends + max(-ends, min(ends, cell))], 190, 15, BLUE)
    if 0 < time <= int(params.freeze_steps):
        canvas.text(middle, 222, "frozen", color=GRAY)
    canvas.text(middle, 252, f"to remember: good goal on the {'left' if good_left else 'right'}", color=GREEN)
    return canvas.array()


def repeat_previous(state: Any, params: Any) -> np.ndarray:
    """Draw the last symbols, oldest first, with a frame around the next target, the last answer, and the number of correct answers."""
    shown, time, lag = np.asarray(state.shown), int(state.time), int(params.lag)
    canvas, middle = Canvas(), SIZE / 2
    canvas.text(middle, 30, f"step {time} of {int(params.max_steps)}", 24)
    pitch = min(60.0, (SIZE - 30) / len(shown))
    x = [middle + pitch * (i - (len(shown) - 1) / 2) for i in range(len(shown))]
    for i in range(max(0, len(shown) - 1 - time), len(shown)):  # there is no symbol before the first
        _square(canvas, x[i], 0.4 * pitch, fill=TINTS[int(shown[i]) % len(TINTS)])
        canvas.text(x[i], 150, _letter(shown[i]), max(8, round(0.4 * pitch)), PAPER)
    if time >= lag:
        _square(canvas, x[1], 0.5 * pitch, outline=AMBER, width=3)
        canvas.text(max(70.0, x[1]), 90, "next target", color=AMBER)
    canvas.text(min(SIZE - 60.0, x[-1]), 205, "observed now", color=BLUE)
    counts, right = time > lag, int(state.answer) == int(shown[0])
    canvas.text(middle, 260, f"answer {_letter(state.answer)}" if time else "no answer yet", 26)
    verdict = ("right" if right else f"wrong, it was {_letter(shown[0])}") if counts else "no reward"
    canvas.text(middle, 296, verdict, color=(GREEN if right else RED) if counts else GRAY)
    canvas.text(middle, 340, f"right {int(state.right)} of {max(0, time - lag)}")
    return canvas.array()


def _square(canvas: Canvas, x: float, half: float, **style: Any) -> None:
    canvas.draw.rectangle((x - half, 150 - half, x + half, 150 + half), **style)


def _letter(symbol: Any) -> str:
    return chr(ord("A") + int(symbol)) if symbol < 26 else str(int(symbol))
