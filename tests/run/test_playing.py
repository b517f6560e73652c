"""Episodes to look at: they are those that an evaluation judges, row by row, and a picture is of what stands."""

import itertools

import jax
import numpy as np
import pytest

import proximo
from proximo.drivers.learning import fresh_policy
from proximo.errors import EnvError
from proximo.run.evaluation import JUDGEMENT_STREAM
from proximo.run.playing import PolicyAgent, episodes_of, random_agent
from proximo.run.policy import Policy
from proximo.run.program import make_program
from proximo.run.reuse import environment
from proximo.run.settings import make_config

from helpers import shaken

SMALL = {"hidden_sizes": "8", "num_envs": "8", "total_steps": "1024", "encoder": "mlp"}
GRU = {"memory": "gru", "memory_size": 8}


def made(env_id, **settings):
    """A policy with random parameters, as if loaded, that acts differently from row to row."""
    small = {**SMALL, "num_workers": 0} if "gym_toys" in env_id else SMALL
    config = make_config(env_id, {**small, **settings}, preset=False)
    env = environment(config)
    return Policy(shaken(fresh_policy(jax.random.key(1), env, config)), env, config, step=0)


def rows(policy, episodes=1, seed=0, stochastic=False, most_steps=10_000, agent=None):
    agent = agent or PolicyAgent(policy, stochastic)
    return list(episodes_of(policy.env, policy.config, agent, episodes, seed, JUDGEMENT_STREAM, most_steps))


def ends(played):
    """Return, length and success of every episode."""
    last = [row for row in played if row.ended]
    return [row.reached for row in last], [row.step for row in last], [row.success for row in last]


def assert_as_judged(policy, episodes, judged, **how):
    """The episodes are the first of the evaluation; those of another seed are not."""
    returns, lengths, successes = ends(rows(policy, episodes, **how))
    assert lengths == judged.length[:episodes].tolist()
    np.testing.assert_allclose(returns, judged.episode_return[:episodes], rtol=1e-5, atol=1e-5)
    if judged.success is not None:
        assert successes == judged.success[:episodes].tolist()
    others, *_ = ends(rows(policy, episodes, **{**how, "seed": 5}))
    assert np.abs(np.subtract(others, returns)).max() > 1e-3


SLOW = [pytest.param(env_id, marks=pytest.mark.slow) for env_id in ("gymnax:CartPole-v1", "gymnax:Pendulum-v1")]


@pytest.mark.parametrize("env_id", ["proximo:PocMemory", *SLOW])
def test_what_is_watched_in_jax_is_what_was_judged(env_id):
    policy = made(env_id, **GRU, observe_action=True, observe_reward=True)
    assert_as_judged(policy, 4, proximo.evaluate(policy, 9))


def test_the_first_episode_of_sampled_actions_is_the_one_that_was_judged():
    policy = made("proximo:PocMemory", **GRU)
    assert_as_judged(policy, 1, proximo.evaluate(policy, 3, stochastic=True), stochastic=True)


@pytest.mark.parametrize("observed", [{}, {"observe_action": True, "observe_reward": True}])
def test_memory_that_is_carried_over_episodes_is_carried_to_the_next_one(observed):
    policy = made("proximo:PocMemory", **GRU, **observed, reset_memory=False, num_envs=1, num_minibatches=1)
    assert_as_judged(policy, 5, proximo.evaluate(policy, 5))
    forgetful = made("proximo:PocMemory", **GRU)
    assert ends(rows(policy, 5)) != ends(rows(forgetful, 5))


@pytest.mark.parametrize("settings", [{}, {"levels": "3:40"}, {"max_episode_steps": 4}, {"frame_stack": 2}, GRU])
def test_what_is_watched_on_the_host_is_what_was_judged(settings):
    policy = made("gym_toys:DrawnWalk", **settings)
    assert_as_judged(policy, 3, proximo.evaluate(policy, 8))


@pytest.mark.parametrize("observed", [{}, {"observe_action": True, "observe_reward": True}])
def test_memory_carried_over_episodes_of_the_host_is_carried_to_the_next_one(observed):
    policy = made("gym_toys:DrawnWalk", **GRU, **observed, reset_memory=False, num_envs=1, num_minibatches=1)
    assert_as_judged(policy, 4, proximo.evaluate(policy, 4))


def trained_on(env_id, **settings):
    """Return, length and success of every episode that ended in a training: each of its updates is one step of one environment."""
    single = {"num_envs": 1, "num_steps": 1, "num_minibatches": 1, "num_epochs": 1, "normalize_advantage": "none"}
    single |= {"total_steps": 64, "updates_per_call": 64}
    policy = made(env_id, **single, **settings)
    program = make_program(policy.config, policy.env, stacked=False)
    try:
        state = program.start([0])
        program.compile(state)
        _, metrics = program.advance(state, 64)
    finally:
        program.close()
    ended = metrics["rollout/episodes"][0] == 1
    return [metrics[f"rollout/{name}"][0][ended].tolist() for name in ("return_mean", "length_mean", "success_rate")]


@pytest.mark.parametrize("limit", [0, 6])
@pytest.mark.parametrize("env_id", ["toys:EveryThird", "gym_toys:EveryThird"])
def test_return_length_and_success_agree_in_training_evaluation_and_player(env_id, limit):
    policy = made(env_id, max_episode_steps=limit)
    judged = proximo.evaluate(policy, 24)
    assert judged.unfinished == 0
    for returns, lengths, successes in (
        trained_on(env_id, max_episode_steps=limit),
        (judged.episode_return, judged.length, judged.success),
        ends(rows(policy, 12)),
    ):
        lengths = np.asarray(lengths)
        assert len(set(lengths)) >= 3
        assert (lengths == 6).any(), "a success, by an end of its own or by the limit"
        np.testing.assert_array_equal(returns, lengths * (lengths + 1) / 2)
        np.testing.assert_array_equal(successes, lengths % 3 == 0)


def test_an_episode_cut_by_the_player_has_no_success():
    cut = [row for row in rows(made("toys:EveryThird"), 3, most_steps=3) if row.ended == "cut"]
    assert cut
    assert {row.success for row in cut} == {None}


@pytest.mark.parametrize("env_id", ["toys:Drawn", "gym_toys:DrawnWalk", "gym_toys:UnbasedDrawn"])
def test_an_episode_has_a_frame_more_than_steps_and_they_show_its_time(env_id):
    played = rows(made(env_id), 3)
    frames = [row.draw() for row in played]
    _, lengths, _ = ends(played)
    assert len(frames) == sum(lengths) + 3
    assert [row.step for row in played] == [step for length in lengths for step in range(length + 1)]
    assert {frame.shape for frame in frames} == {frames[0].shape}
    assert all((a != b).any() for a, b in itertools.pairwise(frames))
    if "Drawn" in env_id and "Unbased" not in env_id:
        assert [int((frame[0, :, 0] == 255).sum()) for frame in frames] == [row.step for row in played]


def test_a_picture_of_jax_can_be_drawn_when_the_episode_is_long_over():
    later = [row.draw for row in rows(made("toys:Drawn"))]
    at_once = [row.draw() for row in episodes_of(*watched(made("toys:Drawn")))]
    assert all(np.array_equal(draw(), frame) for draw, frame in zip(later, at_once, strict=True))


def watched(policy):
    return policy.env, policy.config, PolicyAgent(policy), 1, 0, JUDGEMENT_STREAM, 1000


def test_a_random_agent_differs_from_the_policy_and_repeats_with_its_seed():
    policy = made("proximo:PocMemory")
    first, again, other = (ends(rows(policy, 6, agent=random_agent(policy.env, seed))) for seed in (0, 0, 1))
    assert first == again != other
    assert first != ends(rows(policy, 6))


@pytest.mark.parametrize("env_id", ["gym_toys:InfoMask", "gym_toys:Parts"])
def test_only_allowed_actions_are_taken(env_id, monkeypatch):
    """These environments raise at any other one."""
    policy = made(env_id)
    monkeypatch.setattr(type(policy.env.make()), "render", lambda self: np.zeros((20, 20, 3), np.uint8))
    for agent in (PolicyAgent(policy), PolicyAgent(policy, stochastic=True), random_agent(policy.env, 0)):
        assert len(rows(policy, 3, agent=agent)) > 15


def test_an_image_that_is_observed_is_the_picture_where_nothing_is_drawn():
    played = rows(made("gym_toys:Parts"))
    assert {row.draw().shape for row in played} == {(40, 40, 3)}
    assert any(row.draw().std() > 10 for row in played)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_the_only_environment_of_a_vectorised_one_is_watched_to_its_true_end(mode):
    policy = made("gym_toys:DrawnVector", env_settings={"mode": mode})
    played = rows(policy, 4)
    _, lengths, _ = ends(played)
    assert len(played) == sum(lengths) + 4
    assert {row.ended for row in played} == {"", "terminated", "truncated"} or len(lengths) == 4


def test_an_episode_is_cut_where_it_is_asked_for_and_says_so():
    played = rows(made("gym_toys:DrawnWalk", env_settings={"end": 0.0}), 2, most_steps=2)
    _, lengths, _ = ends(played)
    assert max(lengths) <= 2
    assert all(row.ended == "truncated" or row.step == 2 for row in played if row.ended)
    assert "cut" in {row.ended for row in played}


@pytest.mark.parametrize("env_id", ["toys:RandomEnds", "gym_toys:Walk", "gym_toys:OwnVector", "gymnax:SimpleBandit-bsuite"])
def test_nothing_to_look_at_is_one_sentence(env_id):
    with pytest.raises(EnvError, match=rf"^{env_id} cannot be watched: it has no renderer, and its observations are no images\."):
        rows(made(env_id))


@pytest.mark.parametrize(
    ("env_id", "sentence"),
    [
        ("toys:BadlyDrawn", r"toys:BadlyDrawn\.render raised RuntimeError: the paint has dried \(toys\.py, line \d+\)"),
        ("toys:DrawnInGray", r"toys:DrawnInGray\.render returned uint8\[40, 60\]: expected uint8 \[height, width, 3\]"),
    ],
)
def test_a_renderer_that_fails_is_named(env_id, sentence):
    played = rows(made(env_id), 3)
    with pytest.raises(EnvError, match=sentence):
        [row.draw() for row in played]
