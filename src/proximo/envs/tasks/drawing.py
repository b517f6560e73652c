"""Draws the tasks: what the agent sees, what it must remember, and the result of its last step."""

from __future__ import annotations

from typing import Any

import numpy as np

from proximo.envs.canvas import AMBER, BLUE, GRAY, GREEN, INK, PALE, RED, TINTS, Canvas, Color

SIZE = 400
GOOD, BAD = "+1", "-1"


def poc_memory(state: Any, params: Any, ends: int) -> np.ndarray:
    """Draw the line, the agent, the goals while they are visible, the good side, and time, reward and return."""
    cell, time = int(state.cell), int(state.time)
    good_left, over = float(state.left_goal) > 0, abs(cell) >= ends
    shown = over or time <= int(params.show_steps)
    canvas = Canvas(SIZE, SIZE)
    x = {k: SIZE / 2 + 34 * k for k in range(-ends, ends + 1)}
    canvas.text((SIZE / 2, 34), f"step {time}", 26)
    reward, reached = _rewards_of_poc_memory(cell, time, good_left, params, ends)
    result = f"{'good' if reward > 0 else 'bad'} goal reached" if over else "goals shown" if shown else "goals hidden"
    canvas.text((SIZE / 2, 68), result, 20, _sign(reward) if over else BLUE if shown else GRAY)
    canvas.line([(x[-ends], 190), (x[ends], 190)], GRAY, 3)
    for k in x:
        canvas.disc((x[k], 190), 4, GRAY)
    for side, good in ((-ends, good_left), (ends, not good_left)):
        place, color = (x[side], 130), GREEN if good else RED
        canvas.box((place[0] - 26, 106), (place[0] + 26, 154), color if shown else PALE, None if shown else GRAY)
        canvas.text(place, (GOOD if good else BAD) if shown else "?", 24, (255, 255, 255) if shown else GRAY)
    canvas.disc((x[max(-ends, min(ends, cell))], 190), 15, BLUE, INK)
    canvas.text((SIZE / 2, 252), f"to remember: good goal on the {'left' if good_left else 'right'}", 20, GREEN)
    if time and time <= int(params.freeze_steps):
        canvas.text((SIZE / 2, 222), "frozen", 18, GRAY)
    canvas.text((SIZE / 2, 310), f"reward {reward:+.1f}" if time else "no reward yet", 24, _sign(reward))
    canvas.text((SIZE / 2, 350), f"return {reached:+.1f}", 24, INK)
    return canvas.array()


def _rewards_of_poc_memory(cell: int, time: int, good_left: bool, params: Any, ends: int) -> tuple[float, float]:
    """Compute the last reward and the return from the position and the time."""
    moves = max(0, time - int(params.freeze_steps))
    over = abs(cell) >= ends
    last = (1.6 if good_left == (cell < 0) else -1.6) if over else (-0.1 if moves else 0.0)
    return last, last - 0.1 * (moves - 1) if moves else 0.0


def _sign(reward: float) -> Color:
    return GREEN if reward > 0 else RED if reward < 0 else INK


def _letter(symbol: int) -> str:
    return chr(ord("A") + symbol) if symbol < 26 else str(symbol)


def repeat_previous(state: Any, params: Any) -> np.ndarray:
    """Draw the last symbols, oldest first, with a frame around the next target, the last answer, and the number of correct answers."""
    shown, time, lag = np.asarray(state.shown), int(state.time), int(params.lag)
    canvas = Canvas(SIZE, SIZE)
    canvas.text((SIZE / 2, 30), f"step {time} of {int(params.max_steps)}", 24)
    pitch = min(60.0, (SIZE - 30) / len(shown))
    left = (SIZE - pitch * len(shown)) / 2 + pitch / 2
    x = [left + pitch * i for i in range(len(shown))]
    asks = time >= lag
    for i, symbol in enumerate(shown):
        if time + 1 >= len(shown) - i:  # there is no symbol before the first
            _symbol(canvas, x[i], 150, pitch, int(symbol), faded=0 < i < len(shown) - 1 and not (i == 1 and asks))
    if asks:
        canvas.box((x[1] - pitch / 2, 150 - pitch / 2), (x[1] + pitch / 2, 150 + pitch / 2), None, AMBER, 3)
        canvas.text((max(70.0, x[1]), 90), "next target", 18, AMBER)
    canvas.text((min(SIZE - 52.0, x[-1]), 205), "observed now", 18, BLUE)
    counts = time > lag
    right = counts and int(state.answer) == int(shown[0])
    color = (GREEN if right else RED) if counts else GRAY
    answer = f"answer {_letter(int(state.answer))}" if time else "no answer yet"
    canvas.text((SIZE / 2, 260), answer, 26, color)
    verdict = "right" if right else f"wrong, it was {_letter(int(shown[0]))}"
    canvas.text((SIZE / 2, 296), verdict if counts else "no reward", 20, color)
    asked, share = max(0, time - lag), int(params.max_steps) - lag
    canvas.text((SIZE / 2, 340), f"reward {(1 / share if right else 0):.3f}", 20)
    canvas.text((SIZE / 2, 372), f"right {int(state.right)} of {asked}, return {int(state.right) / share:.3f}", 20)
    return canvas.array()


def _symbol(canvas: Canvas, x: float, y: float, pitch: float, symbol: int, faded: bool) -> None:
    color = TINTS[symbol % len(TINTS)]
    if faded:
        red, green, blue = ((3 * c + 5 * 252) // 8 for c in color)
        color = (red, green, blue)
    half = 0.4 * pitch
    canvas.box((x - half, y - half), (x + half, y + half), color)
    if pitch >= 12:
        canvas.text((x, y), _letter(symbol), max(8, round(0.5 * pitch)), (255, 255, 255))
