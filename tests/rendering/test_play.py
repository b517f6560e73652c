"""Episodes to watch: they are those of an evaluation, step by step, and a picture shows the step."""

import itertools
import re

import gymnasium as gym
import numpy as np
import pytest

import proximo
from proximo.collect.environment import environment
from proximo.errors import EnvError
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.evaluation.policy import Policy
from proximo.rendering.play import policy_agent, random_agent
from proximo.rendering.players import make_player
from proximo.rendering.watching import Subject
from proximo.settings import make_config
from proximo.training.backends import make_backend

import gym_toys
from helpers import drawn_policy

SMALL = {"hidden_sizes": "8", "num_envs": "8", "total_steps": "1024", "encoder": "mlp"}
GRU = {"memory": "gru", "memory_size": 8}


def made(env_id, **settings):
    """A policy with random parameters, as if loaded, that acts differently from step to step."""
    small = {**SMALL, "num_workers": 0} if "gym_toys" in env_id else SMALL
    config = make_config(env_id, {**small, **settings}, preset=False)
    env = environment(config)
    return Policy(drawn_policy(env, config), env, config, step=0)


def drawn(env_id):
    """An environment, its settings, and an agent that acts at random."""
    config = make_config(env_id, {**SMALL, "num_workers": 0}, preset=False)
    env = environment(config)
    return env, config, random_agent(env, 0)


def steps(policy, episodes=1, seed=0, deterministic=True, max_steps=10_000, agent=None):
    agent = agent or policy_agent(policy, deterministic)
    return list(Subject(policy.env, policy.config, agent, "greedy").play(episodes, seed, max_steps))


def ends(played):
    """Return, length and success of every episode."""
    last = [step for step in played if step.ended]
    return [step.episode_return for step in last], [step.step for step in last], [step.success for step in last]


def assert_as_evaluated(policy, episodes, evaluated, **how):
    """The episodes are the first of the evaluation; those of another seed are not."""
    returns, lengths, successes = ends(steps(policy, episodes, **how))
    assert lengths == evaluated.length[:episodes].tolist()
    np.testing.assert_allclose(returns, evaluated.episode_return[:episodes], rtol=1e-5, atol=1e-5)
    if evaluated.success is not None:
        assert successes == evaluated.success[:episodes].tolist()
    others, *_ = ends(steps(policy, episodes, **{**how, "seed": 5}))
    assert np.abs(np.subtract(others, returns)).max() > 1e-3


OBSERVING = {**GRU, "observe_action": True, "observe_reward": True}
KEEPING = {**OBSERVING, "reset_memory": False, "num_envs": 1, "num_minibatches": 1}


@pytest.mark.parametrize(
    ("env_id", "settings", "episodes"),
    [
        ("proximo:PocMemory", OBSERVING, (4, 9)),
        ("proximo:PocMemory", KEEPING, (5, 5)),
        ("gym_toys:DrawnWalk", {"levels": "3:40"}, (6, 20)),
        ("gym_toys:DrawnWalk", {"max_episode_steps": 4, "frame_stack": 2}, (3, 8)),
        ("gym_toys:DrawnWalk", GRU, (3, 8)),
        ("gym_toys:DrawnWalk", KEEPING, (4, 4)),
        *(("gym_toys:DrawnVector", {"env_settings": {"mode": mode}}, (5, 20)) for mode in ("NextStep", "SameStep", "Disabled")),
    ],
)
def test_player_plays_the_episodes_of_the_evaluation(env_id, settings, episodes):
    policy = made(env_id, **settings)
    num_envs = {"num_envs": 8} if episodes[1] == 20 else {}
    assert_as_evaluated(policy, episodes[0], proximo.evaluate(policy, episodes[1], **num_envs))


def test_player_samples_its_first_episode_as_the_evaluation_and_accepts_every_seed():
    policy = made("proximo:PocMemory", **GRU)
    assert_as_evaluated(policy, 1, proximo.evaluate(policy, 3, deterministic=False), deterministic=False)
    assert_as_evaluated(policy, 2, proximo.evaluate(policy, 2, seed=2**32 - 1), seed=2**32 - 1)


def trained_on(env_id, **settings):
    """Return, length and success of every episode that ended in a training: each of its updates is one step of one environment."""
    single = {"num_envs": 1, "num_steps": 1, "num_minibatches": 1, "num_epochs": 1, "normalize_advantage": "none"}
    single |= {"total_steps": 64, "updates_per_call": 64}
    policy = made(env_id, **single, **settings)
    backend = make_backend(policy.config, policy.env)
    try:
        state = backend.prepare(lambda: backend.start([0]))
        _, metrics = backend.advance(state, 64)
    finally:
        backend.close()
    ended = metrics["rollout/episodes"][0] == 1
    return [metrics[f"rollout/{name}"][0][ended].tolist() for name in ("return_mean", "length_mean", "success_rate")]


@pytest.mark.parametrize("limit", [0, 6])
@pytest.mark.parametrize("env_id", ["toys:EveryThird", "gym_toys:EveryThird"])
def test_return_length_and_success_agree_in_training_evaluation_and_player(env_id, limit):
    policy = made(env_id, max_episode_steps=limit)
    evaluated = proximo.evaluate(policy, 24)
    assert evaluated.unfinished == 0
    for returns, lengths, successes in (
        trained_on(env_id, max_episode_steps=limit),
        (evaluated.episode_return, evaluated.length, evaluated.success),
        ends(steps(policy, 12)),
    ):
        lengths = np.asarray(lengths)
        assert len(set(lengths)) >= 3
        assert (lengths == 6).any(), "a success, by an end of its own or by the limit"
        np.testing.assert_array_equal(returns, lengths * (lengths + 1) / 2)
        np.testing.assert_array_equal(successes, lengths % 3 == 0)


@pytest.mark.parametrize("env_id", ["toys:Drawn", "gym_toys:DrawnWalk", "gym_toys:UnbasedDrawn"])
def test_episode_has_one_frame_per_step_plus_the_first(env_id):
    played = steps(made(env_id), 3)
    frames = [step.draw() for step in played]
    _, lengths, _ = ends(played)
    assert len(frames) == sum(lengths) + 3
    assert [step.step for step in played] == [step for length in lengths for step in range(length + 1)]
    assert {frame.shape for frame in frames} == {frames[0].shape}
    assert all((a != b).any() for a, b in itertools.pairwise(frames))
    if "Drawn" in env_id and "Unbased" not in env_id:
        assert [int((frame[0, :, 0] == 255).sum()) for frame in frames] == [step.step for step in played]


def test_random_agent_differs_from_the_policy_and_repeats_by_seed():
    policy = made("proximo:PocMemory")
    first, again, other = (ends(steps(policy, 6, agent=random_agent(policy.env, seed))) for seed in (0, 0, 1))
    assert first == again != other
    assert first != ends(steps(policy, 6))


@pytest.mark.parametrize("env_id", ["gym_toys:InfoMask", "gym_toys:Parts"])
def test_only_allowed_actions_are_taken(env_id, monkeypatch):
    """These environments raise at any other one."""
    policy = made(env_id)
    monkeypatch.setattr(type(policy.env.make()), "render", lambda self: np.zeros((20, 20, 3), np.uint8))
    for agent in (policy_agent(policy), policy_agent(policy, deterministic=False), random_agent(policy.env, 0)):
        assert len(steps(policy, 3, agent=agent)) > 15


@pytest.mark.parametrize("mode", ["human", "ansi"])
def test_environment_without_the_mode_rgb_array_shows_its_images(mode):
    class Images(gym_toys.Parts):
        metadata = {"render_modes": [mode]}  # noqa: RUF012

        def __init__(self, render_mode=None):
            super().__init__()
            assert render_mode is None

        def render(self):
            return "text"

    agent = proximo.PPO(Images, num_envs=2, num_steps=8, num_workers=0, encoder="mlp")
    assert agent.render(1, max_steps=3).frames == 4


@pytest.mark.parametrize(("modes", "draws"), [(["human", "rgb_array"], False), ([], True), ([], False)])
def test_constructor_without_render_mode_is_watched_if_it_draws(modes, draws, monkeypatch):
    class Plain(gym_toys.Walk):
        metadata = {"render_modes": modes}  # noqa: RUF012

        def render(self):
            return np.full((20, 20, 4), 7, np.uint8) if draws else super().render()

    monkeypatch.setitem(gym.registry, "Plain-v0", gym.envs.registration.EnvSpec("Plain-v0", Plain))
    for window in (False, True):
        played = Subject(*drawn("Plain-v0"), "random").play(1, 0, window=window)
        if draws:
            assert {step.draw().shape for step in played} == {(20, 20, 3)}, "without its opacity"
            continue
        with pytest.raises(EnvError, match=r"^Plain-v0 cannot be watched: it (was made without a render_mode|has no rend)"):
            next(played).draw()


@pytest.mark.parametrize("wrap", [lambda env: env, gym.wrappers.RenderCollection])
def test_instance_that_was_made_to_draw_is_watched(wrap):
    agent = proximo.PPO(wrap(gym_toys.DrawnWalk("rgb_array")), num_envs=2, num_steps=8, num_workers=0)
    player = make_player(agent.env, agent.config, 0, EVALUATION_STREAM)
    player.reset(0)
    first = player.picture()()
    player.step(np.zeros(1, np.int32))
    second = player.picture()()
    player.close()
    assert first.shape == second.shape == (30, 50, 3)
    assert (first != second).any()


def test_environment_made_without_a_render_mode_is_named():
    agent = proximo.PPO(lambda: gym_toys.DrawnWalk(), num_envs=2, num_steps=8, num_workers=0)
    told = r"it was made without a render_mode. Give its class or function an argument render_mode, as lambda render_mode=None: MyEnv"
    assert any(re.search(told, warning) for warning in agent.warnings)  # before the training, not only after it
    with pytest.raises(EnvError, match=told):
        agent.render(1)
    agent = proximo.PPO(lambda render_mode=None: gym_toys.DrawnWalk(render_mode), num_envs=2, num_steps=8, num_workers=0)
    assert not any("render_mode" in warning for warning in agent.warnings)
    assert proximo.PPO(gym_toys.DrawnWalk(), num_envs=2, num_steps=8, num_workers=0).render(1).episodes


def test_episode_is_cut_at_max_steps_and_marked_as_cut():
    played = steps(made("gym_toys:DrawnWalk", env_settings={"terminate": 0.0}), 2, max_steps=2)
    _, lengths, _ = ends(played)
    assert max(lengths) <= 2
    assert all(step.ended == "truncated" or step.step == 2 for step in played if step.ended)
    assert {step.success for step in played if step.ended == "cut"} == {None}


@pytest.mark.parametrize("env_id", ["toys:RandomEnds", "gym_toys:Walk", "gym_toys:CustomVector", "gymnax:SimpleBandit-bsuite"])
def test_environment_without_renderer_or_images_raises_one_sentence(env_id):
    sentence = rf"^{env_id} cannot be watched: it has no renderer, and its observations are not images\."
    with pytest.raises(EnvError, match=sentence):
        steps(made(env_id))


@pytest.mark.parametrize(
    ("env_id", "sentence"),
    [
        ("toys:BadlyDrawn", r"toys:BadlyDrawn\.render raised RuntimeError: the paint has dried \(toys\.py, line \d+\)"),
        ("toys:DrawnInGray", r"toys:DrawnInGray\.render returned uint8\[40, 60\]: expected uint8 \[height, width, 3\]"),
    ],
)
def test_failing_renderer_is_reported_with_its_environment(env_id, sentence):
    played = steps(made(env_id), 3)
    with pytest.raises(EnvError, match=sentence):
        [step.draw() for step in played]
