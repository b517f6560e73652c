"""Episodes to watch: they are those of an evaluation, step by step, and a picture shows the step."""

import itertools
import re

import gymnasium as gym
import numpy as np
import pytest

import proximo
from proximo.collect.environment import environment
from proximo.errors import EnvError
from proximo.evaluation.policy import Policy
from proximo.rendering.watching import Subject, acting
from proximo.settings import make_config
from proximo.training.backends import make_backend

import gym_toys
from helpers import drawn_policy

SMALL = {"hidden_sizes": "8", "num_envs": "8", "total_steps": "1024", "encoder": "mlp"}
AGENT = {"num_envs": 2, "num_steps": 8, "num_workers": 0, "hidden_sizes": "8", "towers": "shared"}
GRU = {"memory": "gru", "memory_size": 8}


def made(env_id, **settings):
    """A policy with random parameters, as if loaded, that acts differently from step to step."""
    small = {**SMALL, "num_workers": 0} if "gym_toys" in env_id else SMALL
    config = make_config(env_id, {**small, **settings}, preset=False)
    env = environment(config)
    return Policy(drawn_policy(env, config), env, config, step=0)


def steps(policy, episodes=1, seed=0, **how):
    return list(acting(policy, episodes=episodes, seed=seed, **how).play())


def at_random(policy, episodes=1, seed=0, window=False):
    return Subject(env=policy.env, config=policy.config, episodes=episodes, seed=seed).play(window)


def ends(played):
    """Return, length and success of every episode."""
    last = [step for step in played if step.ended]
    return [step.episode_return for step in last], [step.step for step in last], [step.success for step in last]


OBSERVING = {**GRU, "observe_action": True, "observe_reward": True}
KEEPING = {**OBSERVING, "reset_memory": False, "num_envs": 1, "num_minibatches": 1}


@pytest.mark.parametrize(
    ("env_id", "settings", "episodes", "how"),
    [
        ("proximo:PocMemory", OBSERVING, (4, 9), {}),
        ("proximo:PocMemory", KEEPING, (5, 5), {}),
        ("proximo:PocMemory", GRU, (1, 3), {"deterministic": False}),
        ("proximo:PocMemory", GRU, (2, 2), {"seed": 2**32 - 1}),
        ("gym_toys:DrawnWalk", {"levels": "3:40"}, (6, 20), {}),
        ("gym_toys:DrawnWalk", {"max_episode_steps": 4, "frame_stack": 2}, (3, 8), {}),
        ("gym_toys:DrawnWalk", KEEPING, (4, 4), {}),
        *(
            ("gym_toys:DrawnVector", {"env_settings": {"mode": mode}}, (5, 20), {})
            for mode in ("NextStep", "SameStep", "Disabled")
        ),
    ],
)
def test_player_plays_the_first_episodes_of_the_evaluation_with_its_seed(env_id, settings, episodes, how):
    policy, (count, evaluated_count) = made(env_id, **settings), episodes
    evaluated = proximo.evaluate(policy, evaluated_count, **how, **({"num_envs": 8} if evaluated_count == 20 else {}))
    returns, lengths, successes = ends(steps(policy, count, **how))
    assert lengths == evaluated.length[:count].tolist()
    np.testing.assert_allclose(returns, evaluated.episode_return[:count], rtol=1e-5, atol=1e-5)
    if evaluated.success is not None:
        assert successes == evaluated.success[:count].tolist()
    others, *_ = ends(steps(policy, count, **{**how, "seed": 5}))
    assert np.abs(np.subtract(others, returns)).max() > 1e-3


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


@pytest.mark.parametrize("env_id", ["toys:EveryThird", "gym_toys:EveryThird"])
def test_return_length_and_success_agree_in_training_evaluation_and_player(env_id):
    """Episodes of 3 to 5 steps end by themselves, all others by the limit."""
    policy = made(env_id, max_episode_steps=6)
    evaluated = proximo.evaluate(policy, 24)
    assert evaluated.unfinished == 0
    for returns, lengths, successes in (
        trained_on(env_id, max_episode_steps=6),
        (evaluated.episode_return, evaluated.length, evaluated.success),
        ends(steps(policy, 12)),
    ):
        lengths = np.asarray(lengths)
        assert {3, 6} < set(lengths.tolist()), "successes, by an end of its own and by the limit"
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
    if "Unbased" not in env_id:
        assert [int((frame[0, :, 0] == 255).sum()) for frame in frames] == [step.step for step in played]


def test_random_actions_differ_from_the_policys_and_repeat_by_seed():
    policy = made("proximo:PocMemory")
    first, again, other = (ends(at_random(policy, 6, seed)) for seed in (0, 0, 1))
    assert first == again != other
    assert first != ends(steps(policy, 6))


@pytest.mark.parametrize("env_id", ["gym_toys:InfoMask", "gym_toys:Parts"])
def test_only_allowed_actions_are_taken(env_id, monkeypatch):
    """These environments raise at any other one."""
    policy = made(env_id)
    monkeypatch.setattr(type(policy.env.make()), "render", lambda self: np.zeros((20, 20, 3), np.uint8))
    for played in (steps(policy, 3), steps(policy, 3, deterministic=False), at_random(policy, 3)):
        assert len(list(played)) > 15


def test_environment_without_the_mode_rgb_array_shows_its_images():
    class Images(gym_toys.Parts):
        metadata = {"render_modes": ["human", "ansi"]}  # noqa: RUF012

        def __init__(self, render_mode=None):
            super().__init__()
            assert render_mode is None

        def render(self):
            return "text"

    agent = proximo.PPO(Images, **AGENT, encoder="mlp")
    assert agent.render(1, max_steps=3).frames == 4


@pytest.mark.parametrize(("modes", "draws"), [(["human", "rgb_array"], False), ([], True), ([], False)])
def test_constructor_without_render_mode_is_watched_if_it_draws(modes, draws, monkeypatch):
    class Plain(gym_toys.Walk):
        metadata = {"render_modes": modes}  # noqa: RUF012

        def render(self):
            return np.full((20, 20, 4), 7, np.uint8) if draws else super().render()

    monkeypatch.setitem(gym.registry, "Plain-v0", gym.envs.registration.EnvSpec("Plain-v0", Plain))
    for window in (False, True):
        played = at_random(made("Plain-v0", num_workers=0), window=window)
        if draws:
            assert {step.draw().shape for step in played} == {(20, 20, 3)}, "without its opacity"
            continue
        with pytest.raises(EnvError, match=r"^Plain-v0 cannot be watched: it (was made without a render_mode|has no rend)"):
            next(played).draw()


@pytest.mark.parametrize("wrap", [lambda env: env, gym.wrappers.RenderCollection])
def test_instance_that_was_made_to_draw_is_watched(wrap):
    agent = proximo.PPO(wrap(gym_toys.DrawnWalk("rgb_array")), **AGENT)
    first, second, *_ = (step.draw() for step in acting(agent.policy).play())
    assert first.shape == second.shape == (30, 50, 3)
    assert (first != second).any()


def test_environment_made_without_a_render_mode_is_named():
    agent = proximo.PPO(lambda: gym_toys.DrawnWalk(), **AGENT)
    told = r"it was made without a render_mode. Give its class or function an argument render_mode, as lambda render_mode=None: MyEnv"
    assert any(re.search(told, warning) for warning in agent.warnings)  # before the training, not only after it
    with pytest.raises(EnvError, match=told):
        agent.render(1)
    agent = proximo.PPO(lambda render_mode=None: gym_toys.DrawnWalk(render_mode), **AGENT)
    assert not any("render_mode" in warning for warning in agent.warnings)
    assert proximo.PPO(gym_toys.DrawnWalk(), **AGENT).render(1).episodes


def test_episode_is_cut_at_max_steps_and_marked_as_cut():
    played = steps(made("gym_toys:DrawnWalk", env_settings={"terminate": 0.0}), 2, max_steps=2)
    ends = {(step.ended, step.step, step.success) for step in played if step.ended}
    assert {end for end in ends if end[0] != "truncated"} == {("cut", 2, None)}


NOT_DRAWN = r"%s cannot be watched: it has no renderer, and its observations are not images\."
Undrawn = gym_toys.altered(gym_toys.DrawnWalk, render=gym.Env.render)
UNDRAWABLE = "toys:RandomEnds", "gym_toys:Walk", "test_play:Undrawn", "gym_toys:CustomVector", "gymnax:SimpleBandit-bsuite"


@pytest.mark.parametrize(
    ("env_id", "sentence"),
    [
        *((env_id, NOT_DRAWN % env_id) for env_id in UNDRAWABLE),
        ("toys:BadlyDrawn", r"toys:BadlyDrawn\.render raised RuntimeError: the paint has dried \(toys\.py, line \d+\)"),
        ("toys:DrawnInGray", r"toys:DrawnInGray\.render returned uint8\[40, 60\]: expected uint8 \[height, width, 3\]"),
    ],
)
def test_missing_or_failing_renderer_raises_one_sentence(env_id, sentence):
    with pytest.raises(EnvError, match=f"^{sentence}"):
        [step.draw() for step in steps(made(env_id))]
