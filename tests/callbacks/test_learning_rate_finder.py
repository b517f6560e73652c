"""A finder suggests the rate at which its limits are exceeded, or raises; a resumed training records the same rows."""

from types import SimpleNamespace

import numpy as np
import optax
import pytest
from PIL import Image

import proximo
from commands import BATCH, SMALL, copied
from proximo.callbacks import LearningRateFinder
from proximo.callbacks.learning_rate_finder import non_decreasing
from proximo.errors import ConfigError

ENV = "toys:RandomEnds"
LIMITS = {"clip_fraction": 0.1, "kl": 0.02}
UPDATES = SMALL["total_steps"] // BATCH


def trained(folder, *callbacks, **settings):
    return proximo.train(ENV, callbacks=callbacks, runs_dir=str(folder), name="r", **{**SMALL, **settings})


def feed(finder, fractions, divergences=None, step=100):
    """Give the finder updates whose rates grow as in its settings. Returns whether it asks to stop after each."""
    total, stops = step * len(fractions), []
    for i, fraction in enumerate(fractions):
        rate = finder.low * (finder.high / finder.low) ** (i / len(fractions))
        metrics = {
            "train/learning_rate": rate,
            "train/clip_fraction": fraction,
            "train/approx_kl": 1e-4,
            "rollout/return_mean": float("nan"),
        }
        if divergences is not None:
            metrics["train/approx_kl"] = divergences[i]
        stops.append(finder.on_update(SimpleNamespace(step=step * (i + 1), total_steps=total, metrics=metrics)))
    return stops


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 2, 2, 3], [1, 2, 2, 3]), ([3, 1, 2], [2, 2, 2]), ([0, 4, 2, 6, 5, 4, 9], [0, 3, 3, 5, 5, 5, 9]), ([2], [2])],
)
def test_non_decreasing_fit_equals_values_by_hand(values, expected):
    assert non_decreasing(np.array(values, float)).tolist() == expected


def test_non_decreasing_fit_is_nearer_than_any_other():
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(0.1, 1.0, 40))
    found = non_decreasing(values)
    assert np.all(np.diff(found) >= 0)
    assert found.sum() == pytest.approx(values.sum())
    for _ in range(200):
        other = np.sort(found + rng.normal(0, 0.3, 40))
        assert np.sum((other - values) ** 2) > np.sum((found - values) ** 2)


@pytest.mark.parametrize("at", [1e-4, 1e-3, 1e-2])
def test_suggestion_is_the_rate_at_the_clip_fraction_limit(at):
    finder = LearningRateFinder(**LIMITS)
    rates = 1e-5 * 1e4 ** (np.arange(200) / 200)
    noise = np.random.default_rng(1).normal(0, 0.02, 200)
    feed(finder, np.clip(0.1 * (rates / at) ** 0.5 + noise, 0, 0.45))
    assert finder.suggestion == pytest.approx(at, rel=0.35)
    assert f"{finder.suggestion:.1e}" == f"{finder.suggestion:.6e}"[:3] + f"{finder.suggestion:.6e}"[-4:], "two digits"


@pytest.mark.parametrize("at", [1e-4, 1e-2])
def test_divergence_decides_where_clipping_fades(at):
    finder = LearningRateFinder(**LIMITS)
    rates = 1e-5 * 1e4 ** (np.arange(200) / 200)
    noise = np.exp(np.random.default_rng(1).normal(0, 0.5, 200))
    divergences = 0.02 * (rates / at) * noise
    divergences[30] = 10.0  # one update that went astray
    feed(finder, np.where(rates < at, 0.04, 0.01), divergences)
    assert finder.suggestion == pytest.approx(at, rel=0.35)


def test_first_exceeded_limit_decides():
    clip, kl = [0.0] * 4 + [0.2] * 6, [1e-3] * 7 + [1.0] * 3
    finders = [LearningRateFinder(clip_fraction=a, kl=b) for a, b in ((0.1, 0.02), (0.3, 0.02), (0.3, 0.01))]
    for finder in finders:
        feed(finder, clip, kl)
    first, second, third = (finder.suggestion for finder in finders)
    assert first < 4.1e-4 < third < second < 6.4e-3


def test_suggestion_is_interpolated_on_a_logarithmic_scale():
    finder = LearningRateFinder(1e-4, 1e-2, **LIMITS)
    feed(finder, [0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2])
    assert finder.suggestion == float(f"{1e-4 * 100**0.45:.1e}")


@pytest.mark.parametrize(
    ("fractions", "sentence"),
    [
        (
            [0.01] * 10,
            r"0\.04, the clip fraction 0\.01 and the approx kl 0\.0001 did not exceed 0\.1 or 0\.02: choose a larger high",
        ),
        ([0.3] * 10, r"the first learning rate, 1e-05, already exceeds 0\.1 or 0\.02: choose a smaller low\."),
    ],
)
def test_range_without_a_suggestion_raises(fractions, sentence, tmp_path):
    finder = LearningRateFinder(**LIMITS)
    feed(finder, fractions)
    with pytest.raises(ConfigError, match=sentence):
        _ = finder.suggestion
    assert finder.plot(tmp_path / "rates.png").stat().st_size


def test_training_stops_after_five_mostly_clipped_updates():
    assert feed(LearningRateFinder(), [0.0] * 10 + [0.6, 0.6, 0.6, 0.6, 0.4, 0.6, 0.6, 0.6, 0.6, 0.6]) == [False] * 19 + [True]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((1e-3, 1e-3), r"low = 0\.001, high = 0\.001: expected 0 < low < high\."),
        ((0, 1e-3), r"expected 0 < low < high"),
        ((1e-3, float("inf")), r"expected 0 < low < high"),
        (("a",), r"low = 'a': expected a number\."),
    ],
)
def test_invalid_range_raises(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        LearningRateFinder(*given)
    with pytest.raises(ConfigError, match="more than 0 and less than"):
        LearningRateFinder(clip_fraction=0.7)
    with pytest.raises(ConfigError, match="kl = 0: expected more than 0"):
        LearningRateFinder(kl=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finder and its uninterrupted training."""
    finder = LearningRateFinder(1e-4, 1.0)
    [result] = trained(tmp_path_factory.mktemp("whole"), finder, **finder.settings)
    return finder, result


def test_rates_grow_by_equal_factors_over_the_updates(whole):
    finder, _ = whole
    rates = np.array([row["learning_rate"] for row in finder.rows])
    assert [row["step"] for row in finder.rows] == [BATCH * (i + 1) for i in range(UPDATES)]
    assert rates == pytest.approx(1e-4 * 1e4 ** (np.arange(UPDATES) / UPDATES), rel=1e-4)
    assert set(finder.rows[0]) == {
        "step", "learning_rate", "clip_fraction", "approx_kl", "return", "loss", "value_loss", "explained_variance", "entropy",
    }  # fmt: skip
    assert 1e-4 < finder.suggestion < 1.0


def test_plot_writes_a_picture(whole, tmp_path):
    assert whole[0].plot(tmp_path / "rates.svg").stat().st_size
    path = whole[0].plot(tmp_path / "rates.png")
    with Image.open(path) as image:
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
        assert min(image.size) > 500
    with pytest.raises(ConfigError, match=r"Cannot write .*expected a name such as curve\.png"):
        whole[0].plot(tmp_path / "missing" / "rates.png")


class StopAt:
    def __init__(self, step=np.inf):
        self.step = step

    def on_update(self, info):
        return info.step >= self.step


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """The run of a training that was stopped halfway."""
    finder = LearningRateFinder(1e-4, 1.0)
    [result] = trained(tmp_path_factory.mktemp("half"), finder, StopAt(SMALL["total_steps"] // 2), **finder.settings)
    assert len(finder.rows) == UPDATES // 2
    return result.run_dir


def test_resumed_training_records_the_same_rows(whole, half, tmp_path):
    finder = LearningRateFinder(1e-4, 1.0)
    proximo.resume(copied(half, tmp_path), callbacks=[finder, StopAt()])
    assert finder.rows == whole[0].rows
    assert finder.suggestion == whole[0].suggestion


@pytest.mark.parametrize(
    ("callbacks", "settings", "sentence"),
    [
        (
            [LearningRateFinder(), StopAt()],
            {},
            r"the range of the run is 0\.0001 to 1, of this finder 1e-05 to 0\.1: resume with the same range",
        ),
        ([LearningRateFinder(1e-4, 1.0)], {}, r"is 0\.01 at step 352: expected 0\.0001, the start of the range"),
        (
            [LearningRateFinder(1e-4, 1.0), StopAt()],
            {"total_steps": 6400},
            r"is 0\.000158 at step 352, after 0\.00631: expected it to grow",
        ),
    ],
)
def test_resume_with_another_range_raises(half, tmp_path, callbacks, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        proximo.resume(copied(half, tmp_path), callbacks=callbacks, **settings)


def test_each_seed_has_its_own_finder(tmp_path):
    finder = LearningRateFinder(1e-4, 1.0)
    results = trained(tmp_path, finder, seeds=2, **finder.settings)
    assert [len(result.callbacks[0].rows) for result in results] == [UPDATES, UPDATES]
    with pytest.raises(ConfigError, match=r"has recorded 0 updates: .* in result\.callbacks"):
        _ = finder.suggestion


def test_training_without_the_finder_settings_raises(tmp_path):
    finder = LearningRateFinder()
    with pytest.raises(ConfigError, match=r"the learning rate is 0\.001 at step 32: expected 1e-05.*\*\*finder\.settings"):
        trained(tmp_path / "a", finder)
    with pytest.raises(ConfigError, match=r"total_steps = 288 are 9 updates of 32 steps: expected 10 or more"):
        trained(tmp_path / "b", finder, **{**finder.settings, "total_steps": 9 * BATCH})
    with pytest.raises(ConfigError, match=r"the optimizer has its own learning rate. Train with finder\.settings"):
        trained(tmp_path / "c", finder, optimizer=optax.adam(1e-3))


@pytest.mark.slow
@pytest.mark.learning
def test_suggested_rate_learns_faster_than_far_lower_or_higher_rates():
    steps = 24 * 1024
    finder = LearningRateFinder()
    proximo.PPO("gymnax:CartPole-v1", eval_episodes=0, **finder.settings).learn(steps, callbacks=[finder])

    def reached(rate):
        agent = proximo.PPO("gymnax:CartPole-v1", eval_episodes=0, learning_rate=rate).learn(steps)
        return agent.history[-1]["rollout/return_mean"]

    best = reached(finder.suggestion)
    assert best > 150
    assert best > 2 * reached(finder.suggestion / 30)
    assert best > 2 * reached(finder.suggestion * 100)
