"""A finder suggests the rate at which its clip fraction is passed, or says why it cannot; one training leads to it, in one go or resumed."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import proximo
from commands import BATCH, SMALL, copied
from proximo.callbacks import LearningRateFinder
from proximo.callbacks.learning_rate_finder import growing
from proximo.errors import ConfigError

ENV = "toys:RandomEnds"
LIMITS = {"clip_fraction": 0.1, "kl": 0.02}
UPDATES = SMALL["total_steps"] // BATCH


def trained(folder, *callbacks, **settings):
    return proximo.train(ENV, callbacks=callbacks, runs_dir=str(folder), name="r", **{**SMALL, **settings})


def told(finder, fractions, divergences=None, step=100):
    """Whether each update was asked to be the last; the rates grow as the finder's settings have it."""
    total, asked = step * len(fractions), []
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
        asked.append(finder.on_update(SimpleNamespace(step=step * (i + 1), total_steps=total, metrics=metrics)))
    return asked


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 2, 2, 3], [1, 2, 2, 3]), ([3, 1, 2], [2, 2, 2]), ([0, 4, 2, 6, 5, 4, 9], [0, 3, 3, 5, 5, 5, 9]), ([2], [2])],
)
def test_the_nearest_values_that_never_fall_by_hand(values, expected):
    assert growing(np.array(values, float)).tolist() == expected


def test_what_never_falls_is_nearer_than_any_other():
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(0.1, 1.0, 40))
    found = growing(values)
    assert np.all(np.diff(found) >= 0)
    assert found.sum() == pytest.approx(values.sum())
    for _ in range(200):
        other = np.sort(found + rng.normal(0, 0.3, 40))
        assert np.sum((other - values) ** 2) > np.sum((found - values) ** 2)


@pytest.mark.parametrize("at", [1e-4, 1e-3, 1e-2])
def test_the_suggestion_is_the_rate_at_which_the_fraction_is_passed(at):
    finder = LearningRateFinder(**LIMITS)
    rates = 1e-5 * 1e4 ** (np.arange(200) / 200)
    noise = np.random.default_rng(1).normal(0, 0.02, 200)
    told(finder, np.clip(0.1 * (rates / at) ** 0.5 + noise, 0, 0.45))
    assert finder.suggestion == pytest.approx(at, rel=0.35)
    assert f"{finder.suggestion:.1e}" == f"{finder.suggestion:.6e}"[:3] + f"{finder.suggestion:.6e}"[-4:], "two digits"


@pytest.mark.parametrize("at", [1e-4, 1e-2])
def test_where_clipping_fades_because_nothing_is_random_any_more_the_divergence_tells(at):
    finder = LearningRateFinder(**LIMITS)
    rates = 1e-5 * 1e4 ** (np.arange(200) / 200)
    noise = np.exp(np.random.default_rng(1).normal(0, 0.5, 200))
    divergences = 0.02 * (rates / at) * noise
    divergences[30] = 10.0  # one update that went astray
    told(finder, np.where(rates < at, 0.04, 0.01), divergences)
    assert finder.suggestion == pytest.approx(at, rel=0.35)


def test_the_first_of_the_two_counts():
    clip, kl = [0.0] * 4 + [0.2] * 6, [1e-3] * 7 + [1.0] * 3
    finders = [LearningRateFinder(clip_fraction=a, kl=b) for a, b in ((0.1, 0.02), (0.3, 0.02), (0.3, 0.01))]
    for finder in finders:
        told(finder, clip, kl)
    first, second, third = (finder.suggestion for finder in finders)
    assert first < 4.1e-4 < third < second < 6.4e-3


def test_it_is_found_between_two_updates_on_a_logarithmic_scale():
    finder = LearningRateFinder(1e-4, 1e-2, **LIMITS)
    told(finder, [0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.2, 0.2, 0.2, 0.2])
    assert finder.suggestion == float(f"{1e-4 * 100**0.45:.1e}")


@pytest.mark.parametrize(
    ("fractions", "sentence"),
    [
        (
            [0.01] * 10,
            r"0\.04 the clip fraction 0\.01 and the approx kl 0\.0001 was all there was, and 0\.1 or 0\.02 was not passed: raise high",
        ),
        ([0.3] * 10, r"0\.1 or 0\.02 was passed at the first learning rate already, 1e-05: lower low\."),
    ],
)
def test_a_range_that_holds_no_suggestion_is_a_sentence(fractions, sentence, tmp_path):
    finder = LearningRateFinder(**LIMITS)
    told(finder, fractions)
    with pytest.raises(ConfigError, match=sentence):
        _ = finder.suggestion
    assert finder.plot(tmp_path / "rates.png").stat().st_size


def test_it_ends_when_most_rows_have_taught_nothing_for_five_updates():
    assert told(LearningRateFinder(), [0.0] * 10 + [0.6, 0.6, 0.6, 0.6, 0.4, 0.6, 0.6, 0.6, 0.6, 0.6]) == [False] * 19 + [True]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((1e-3, 1e-3), r"low = 0\.001, high = 0\.001: expected two rates, 0 < low < high\."),
        ((0, 1e-3), r"expected two rates"),
        ((1e-3, float("inf")), r"expected two rates"),
    ],
)
def test_a_range_that_is_none_is_refused(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        LearningRateFinder(*given)
    with pytest.raises(ConfigError, match="more than 0 and less than"):
        LearningRateFinder(clip_fraction=0.7)
    with pytest.raises(ConfigError, match="kl = 0: expected more than 0"):
        LearningRateFinder(kl=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finder and its training, in one go."""
    finder = LearningRateFinder(1e-4, 1.0)
    [result] = trained(tmp_path_factory.mktemp("whole"), finder, **finder.settings)
    return finder, result


def test_a_training_gives_a_row_for_each_update_of_rates_that_grow_by_equal_factors(whole):
    finder, _ = whole
    rates = np.array([row["learning_rate"] for row in finder.rows])
    assert [row["step"] for row in finder.rows] == [BATCH * (i + 1) for i in range(UPDATES)]
    assert rates == pytest.approx(1e-4 * 1e4 ** (np.arange(UPDATES) / UPDATES), rel=1e-4)
    assert set(finder.rows[0]) == {
        "step", "learning_rate", "clip_fraction", "approx_kl", "return", "loss", "value_loss", "explained_variance", "entropy",
    }  # fmt: skip
    assert 1e-4 < finder.suggestion < 1.0


def test_the_picture_is_one(whole, tmp_path):
    path = whole[0].plot(tmp_path / "rates.png")
    with Image.open(path) as image:
        assert len(np.unique(np.asarray(image.convert("L")))) > 10
        assert min(image.size) > 500


class StopAt:
    def __init__(self, step=np.inf):
        self.step = step

    def on_update(self, info):
        return info.step >= self.step


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """The run of a training that was stopped half-way."""
    finder = LearningRateFinder(1e-4, 1.0)
    [result] = trained(tmp_path_factory.mktemp("half"), finder, StopAt(SMALL["total_steps"] // 2), **finder.settings)
    assert len(finder.rows) == UPDATES // 2
    return result.run_dir


def test_a_resumed_training_comes_to_the_same_rows(whole, half, tmp_path):
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
            r"the run goes from 0\.0001 to 1, this finder from 1e-05 to 0\.1: resume with the same range",
        ),
        ([LearningRateFinder(1e-4, 1.0)], {}, r"is 0\.01 at step 352: expected 0\.0001, where the range begins"),
        (
            [LearningRateFinder(1e-4, 1.0), StopAt()],
            {"total_steps": 6400},
            r"is 0\.000158 at step 352, behind 0\.00631: expected it to grow",
        ),
    ],
)
def test_what_is_not_the_same_range_test_any_more_is_not_resumed(half, tmp_path, callbacks, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        proximo.resume(copied(half, tmp_path), callbacks=callbacks, **settings)


def test_several_seeds_have_one_each_and_the_one_that_was_given_says_so(tmp_path):
    finder = LearningRateFinder(1e-4, 1.0)
    results = trained(tmp_path, finder, seeds=2, **finder.settings)
    assert [len(result.callbacks[0].rows) for result in results] == [UPDATES, UPDATES]
    with pytest.raises(ConfigError, match=r"has seen 0 updates: .* in result\.callbacks"):
        _ = finder.suggestion


def test_a_training_that_is_not_the_finders_is_told_at_its_first_update(tmp_path):
    finder = LearningRateFinder()
    with pytest.raises(ConfigError, match=r"the learning rate is 0\.0003 at step 32: expected 1e-05.*\*\*finder\.settings"):
        trained(tmp_path / "a", finder)
    with pytest.raises(ConfigError, match=r"total_steps = 288 are 9 updates of 32 steps: expected 10 or more"):
        trained(tmp_path / "b", finder, **{**finder.settings, "total_steps": 9 * BATCH})


@pytest.mark.slow
@pytest.mark.learning
def test_short_trainings_learn_at_the_suggestion_and_neither_far_below_nor_far_above():
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
