"""Evaluation counts whole episodes, each once, on environments of its own; its statistics are the field's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import odd_envs
from proximo.config import override
from proximo.envs.level_seeds import JaxLevels, LevelRange
from proximo.errors import EnvError
from proximo.evaluation.episodes import (
    EVALUATION_STREAM,
    SELECTION_STREAM,
    Episodes,
    bootstrap_interval,
    interquartile_mean,
)
from proximo.evaluation.evaluate import _level_warnings, evaluate
from proximo.evaluation.evaluators import JaxEvaluator, make_evaluator
from proximo.evaluation.policy import Carried, Policy
from proximo.settings import make_config

import toys
from helpers import drawn_policy, small_collector, small_config


def policy_for(env, **settings):
    return drawn_policy(env, small_config(**settings))


def evaluator_of(env, episodes, num_envs=512, **limits):
    return JaxEvaluator(env, small_config(**limits), episodes, num_envs)


def play(env, episodes, deterministic=True, seed=0, stream=SELECTION_STREAM, **limit):
    return evaluator_of(env, episodes, **limit)(policy_for(env), seed, stream, deterministic)


class Tenths(toys.Counting):
    """``Counting`` with a reward of 0.1, and episodes of 50,000 steps."""

    default_params = {"shortest": 50_000, "longest": 50_000}  # noqa: RUF012

    def step(self, key, state, action, params):
        state, observation, _, *rest = super().step(key, state, action, params)
        return state, observation, jnp.float32(0.1), *rest


def test_returns_of_long_episodes_are_exact():
    """A plain sum in float32 is 4999.9 in both places."""
    tenths = 50_000 * float(np.float32(0.1))
    assert play(Tenths(), 1).episode_return == pytest.approx([tenths], rel=1e-7)
    collector = small_collector(Tenths(), num_envs=1, num_steps=50_000)
    state = jax.jit(collector.init)(jax.random.key(0))
    _, _, metrics = jax.jit(collector.collect)(state.learner.policy, state.collector)
    assert float(metrics["rollout/return_mean"]) == pytest.approx(tenths, rel=1e-7)


class Spoiled(toys.Counting):
    """``Counting`` whose observation is NaN, or whose reward is infinite, from step 5 on."""

    def __init__(self, where):
        self.where = where

    def step(self, *arguments):
        state, observation, reward, *rest = super().step(*arguments)
        if self.where == "observation":
            return state, observation.at[1].add(jnp.where(state[0] >= 5, jnp.nan, 0.0)), reward, *rest
        return state, observation, jnp.where(state[0] >= 5, jnp.inf, reward), *rest


@pytest.mark.parametrize("where", ["observation", "reward"])
def test_only_episodes_with_nan_or_infinity_have_no_finite_return(where):
    env, config = Spoiled(where), small_config()
    result = play(env, 50)
    spoiled = result.length > 5 if where == "observation" else result.length >= 5  # no action follows the last observation
    np.testing.assert_array_equal(~np.isfinite(result.episode_return), spoiled)
    assert 0 < np.isfinite(result.episode_return).sum() < 50
    with pytest.raises(EnvError, match=r"\d+ of 50 episodes of .* have no finite return, first index \d+: an observation or a"):
        evaluate(Policy(drawn_policy(env, config), env, config, step=0), 50)


@pytest.mark.parametrize(
    ("limit", "longest"), [({}, 40), ({"max_episode_steps": 7}, 7), ({"max_episode_steps": 7, "eval_max_steps": 6}, 6)]
)
def test_short_episodes_are_not_favoured_and_cut_ones_are_unfinished(limit, longest):
    # Counting whatever ends first, as vector environments with autoreset invite to, would find nearly all of them short.
    result = play(odd_envs.Mixed(), 200, **limit)
    assert set(result.length) == {1, longest}
    assert 0.4 < (result.length == longest).mean() < 0.6
    np.testing.assert_array_equal(result.episode_return, result.length)
    assert result.unfinished == (longest == 6) * (result.length == 6).sum()


def test_summary_and_rows_describe_the_episodes():
    result = evaluator_of(odd_envs.Sized(4), 300, num_envs=8)(policy_for(odd_envs.Sized(4)), 0, SELECTION_STREAM)
    summary, rows = result.summary(), result.rows()
    assert list(summary) == ["episodes", "return_mean", "return_std", "return_iqm", "ci95", "length_mean", "success_rate"]
    assert [row["index"] for row in rows] == list(range(300))
    assert summary["return_mean"] == pytest.approx(np.mean([row["return"] for row in rows]))
    assert summary["success_rate"] == pytest.approx(np.mean([row["success"] for row in rows]))
    assert (summary["length_mean"], summary["episodes"]) == (4, 300)
    assert 0.4 < summary["success_rate"] < 0.6
    assert len({row["return"] for row in play(toys.RandomEnds(), 20).rows()}) == 20
    assert rows[0] | {"env_seed": None, "level": None} == rows[0]
    # As other processes send them. What is not reported is no success, if any episode reports it.
    assert Episodes.from_rows(rows[::2] + rows[1::2], 0).rows() == rows
    unreported = [{**row, "success": None} for row in rows]
    assert Episodes.from_rows(unreported, 0).summary()["success_rate"] is None
    assert Episodes.from_rows(unreported[:150] + rows[150:], 0).success[:150].sum() == 0


def test_the_same_seed_repeats_and_streams_and_seeds_differ():
    def returns(**where):
        return play(toys.RandomEnds(), 8, **where).episode_return.tolist()

    assert returns() == returns()
    # Episodes that select checkpoints in training are not those of a later evaluation.
    assert not set(returns(stream=SELECTION_STREAM)) & set(returns(stream=EVALUATION_STREAM))
    assert not set(returns(seed=0)) & set(returns(seed=1))


def test_the_interquartile_mean_is_scipy_s_and_ignores_outliers():
    x = np.random.default_rng(0).normal(size=100)
    assert interquartile_mean(x) == pytest.approx(stats.trim_mean(x, 0.25))
    assert interquartile_mean(np.r_[x[:99], 1e9]) < 1
    assert interquartile_mean(np.array([1.0, 2.0, 3.0, 4.0])) == 2.5
    assert np.isnan(interquartile_mean(np.array([1.0, 2.0, np.nan, 4.0])))


@pytest.mark.parametrize("episodes", [200, 3000])  # drawn in one piece, and in several
def test_the_interval_is_the_percentile_bootstrap_of_the_mean(episodes):
    x = np.random.default_rng(1).exponential(size=episodes)
    drawn = {"n_resamples": 2999, "method": "percentile", "rng": np.random.default_rng(2)}
    low, high = stats.bootstrap((x,), np.mean, **drawn).confidence_interval
    ours = bootstrap_interval(x)
    assert ours == pytest.approx([low, high], abs=0.05 * (high - low))
    assert bootstrap_interval(x) == ours
    assert bootstrap_interval(np.full(5, 3.0)) == [3.0, 3.0]


def test_drawn_levels_are_reported():
    result = play(JaxLevels(toys.Counting(), LevelRange(3, 9)), 60)
    assert set(result.level) == set(range(3, 9))
    pairs = set(zip(result.level, result.episode_return.tolist(), strict=True))
    assert len(pairs) == 6, "an episode of a level is always the same here"
    assert len({reached for _, reached in pairs}) > 1
    assert play(toys.Counting(), 3).level is None


def test_evaluation_uses_the_matrix_precision_of_the_training(monkeypatch):
    seen, env, real = [], toys.RandomEnds(), jax.nn.log_softmax
    config = small_collector(env).config
    spy = lambda *x, **options: seen.append(jax.config.jax_default_matmul_precision) or real(*x, **options)  # noqa: E731
    for precision in ("default", "highest"):
        with monkeypatch.context() as patch:
            patch.setattr(jax.nn, "log_softmax", spy)
            make_evaluator(env, override(config, {"matmul_precision": precision}), 2)(policy_for(env), 0, 1)
    assert (seen[0], seen[-1]) == ("default", "highest")


ALL = {"env_settings": "levels=all"}


@pytest.mark.parametrize(
    ("trained", "evaluated", "warning"),
    [
        (ALL, {"env_settings": {"levels": "held_out"}}, "not all levels of levels=held_out are new"),
        ({"env_settings": "levels=train"}, {"env_settings": {"levels": "held_out"}}, None),
        ({"env_settings": "levels=held_out"}, {"env_settings": {"levels": "train"}}, None),
        ({"env_settings": {"levels": [1, 2]}}, {"env_settings": {"levels": 3}}, None),  # another environment's own parameter
        ({"env_settings": "levels=train"}, {"levels": "100:150"}, "not all levels of levels=train are new"),
        ({"env_settings": "levels=train"}, {}, None),
        ({**ALL, "levels": "0:100"}, {"levels": "50:150"}, "trained on 50 of the 100 levels 50:150"),
        ({**ALL, "levels": "0:100"}, {"levels": "100:150"}, None),
        ({**ALL, "levels": "0:100"}, {}, None),
    ],
)
def test_evaluation_on_training_levels_warns(trained, evaluated, warning):
    config = make_config("minigrid:MemoryS9", trained)
    warnings = [*_level_warnings(config, override(config, evaluated), "levels" in evaluated)]
    assert len(warnings) == (warning is not None)
    assert all(warning in one for one in warnings)


OBSERVING = {"memory": "gru", "observe_action": True, "observe_reward": True, "reset_memory": False}


def test_rewards_after_an_episode_end_are_not_observed():
    """Environments whose episode has ended wait for the others. Their steps meanwhile belong to no episode."""
    collector = small_collector(toys.Counting(), num_envs=8, num_minibatches=1, **OBSERVING)
    policy = drawn_policy(collector.env, collector.config)
    evaluator, carried = evaluator_of(collector.env, 8), Carried(policy.init_memory(8), policy.no_previous_step(8))
    (_, previous), played = evaluator._chunk(policy, carried, np.zeros(3, np.uint32), True)
    assert len(set(played["length"].tolist())) > 2
    np.testing.assert_array_equal(previous.reward, played["length"])  # the reward of the last step is the length of the episode
