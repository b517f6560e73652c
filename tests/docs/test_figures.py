"""The figures are drawn by what they show, and those that are committed are those that the scripts draw."""

import functools

import numpy as np
import pytest
from PIL import Image

from pages import DOCS, PAGES, script

FIGURES = DOCS / "figures"
draw = script(FIGURES / "draw.py")
figure_of = functools.cache(lambda name: script(FIGURES / f"{name}.py"))


@pytest.mark.parametrize("name", draw.names())
def test_a_figure_is_drawn_and_is_current(name):
    """Where it fails: python docs/figures/draw.py NAME, and look at it."""
    figure = figure_of(name).draw()
    assert figure.get_axes() or any(part.get_axes() for part in figure.subfigs)
    with Image.open(FIGURES / f"{name}.png") as picture:
        assert picture.info[draw.STAMP] == draw.stamp(name)
        assert min(picture.size) > 200
    assert any(f"figures/{name}.png" in page.read_text() for page in PAGES)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_clipped_objective_is_flat_only_beyond_the_improving_end(advantage):
    figure = figure_of("clipped_objective")
    ratio = figure.ratios()
    is_beyond = (ratio - 1) * advantage > figure.EPS
    np.testing.assert_allclose(figure.gradient(ratio, advantage), np.where(is_beyond, 0, advantage), rtol=1e-6)
    np.testing.assert_allclose(figure.objective(ratio, advantage)[is_beyond], advantage + figure.EPS, rtol=1e-6)
    np.testing.assert_allclose(figure.objective(ratio, advantage)[~is_beyond], (ratio * advantage)[~is_beyond], rtol=1e-6)


def test_sequences_are_contiguous_and_begin_with_the_memory_that_they_need():
    pieces = figure_of("sequences").pieces()
    assert (np.diff(pieces["split_sequences"][..., 0], axis=0) == 1).all()
    assert (np.diff(pieces["reshape(L, -1)"][..., 0], axis=0) == 3).all()
    resets = figure_of("resets")
    carried, read = resets.states()
    assert (read[resets.EPISODE_START] == 0).all()
    assert (read[~resets.EPISODE_START] == carried[~resets.EPISODE_START]).all()
    assert (carried != 0).any(axis=1).all()
    burn_in = figure_of("burn_in")
    before, learned, memory = burn_in.steps()
    assert (before[:, -1] + 1 == learned[:, 0]).all()
    assert (before[:, 0] == memory).all()
    assert sorted(learned.ravel()) == list(range(burn_in.STEPS))


def test_time_limit_treated_as_failure_gives_the_documented_values():
    time_limit = figure_of("time_limit")
    right, wrong = time_limit.targets(False), time_limit.targets(True)
    np.testing.assert_allclose(right, 100, rtol=1e-4)
    np.testing.assert_allclose(wrong[-50], (1 - 0.99**50) / 0.01, rtol=1e-4)
    assert round(float(wrong[-50]), 1) == 39.5
