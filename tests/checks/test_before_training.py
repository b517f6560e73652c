"""The checks before a training report in a moment, in one sentence, what would make it fail."""

import dataclasses
import time

import pytest

import proximo
from proximo.checks import before_training, check_before_training, quick_check
from proximo.collect.environment import environment, evaluation_during_training
from proximo.collect.learning import check_policy
from proximo.envs import make_env
from proximo.errors import EnvError
from proximo.settings import make_config
from proximo.tracking.reporter import Reporter

LARGE = {"normalize_observation": False, "normalize_reward": False}


def checked(env_id):
    return quick_check(make_env(env_id), env_id)


@pytest.mark.parametrize(
    ("env_id", "sentence"),  # test_check_environment.py has all others
    [
        ("broken_envs:Raises", r"raised IndexError: list index out of range \(broken_envs.py, line \d+\)$"),
        ("broken_envs:JaxNan", "returned the reward .*nan.*: expected a finite number"),
        ("broken_envs:TerminatedAsInt", "returned terminated = 0: expected True or False"),
        ("odd_envs:FiveValues", "step returns 5 values: expected"),
    ],
)
def test_fault_raises_one_sentence(env_id, sentence):
    with pytest.raises(EnvError, match=f".*{sentence}") as raised:
        checked(env_id)
    assert "\n" not in str(raised.value)


def test_fault_after_the_first_steps_is_left_to_the_training_and_episodes_that_end_begin_again():
    assert len(checked("odd_envs:NanReward")[1].reward) == 8
    _, seen = checked("broken_envs:JaxLarge")
    assert seen.reward[:6, 0].tolist() == [1e5, 2e5, 3e5] * 2
    assert seen.observation[0].max() == 2e6  # the third observation is final


@pytest.mark.parametrize("env_id", ["broken_envs:Large", "broken_envs:JaxLarge"])
def test_scales_are_warnings_of_a_training_and_of_an_agent(env_id, tmp_path, monkeypatch):
    monkeypatch.setattr(before_training, "SECONDS", 60.0)  # the same number of steps for both, also on a slow machine
    reporter, warnings = Reporter(), []
    reporter.warned, reporter.started = warnings.append, lambda *_: 1 / 0  # before the first update
    with pytest.raises(ZeroDivisionError):
        proximo.train(env_id, reporter=reporter, runs_dir=str(tmp_path), **LARGE)
    assert warnings == proximo.PPO(env_id, **LARGE).warnings
    assert [message.split(" of random")[0] for message in warnings] == ["Observations", "Rewards"]


@pytest.mark.parametrize(
    ("settings", "plays"),
    [
        ({"num_envs": 4}, False),
        ({"env_settings": "gravity=9"}, True),
        ({"normalize_reward": False}, True),
        ({"preset": False}, True),
        ({"eval_env_settings": "gravity=9"}, True),
    ],
)
def test_environment_plays_unless_it_trains_as_in_its_preset(settings, plays, monkeypatch):
    opened, open_ = [], before_training.opened
    monkeypatch.setattr(before_training, "opened", lambda *arguments: opened.append(1) or open_(*arguments))
    monkeypatch.setattr(before_training, "reuse", lambda key, make: make())  # no result of another test
    config = make_config("gymnax:CartPole-v1", settings, preset=settings.pop("preset", True))
    env = environment(config)
    check_before_training(env, config, check_policy(env, config), evaluation_during_training(config, env))
    assert len(opened) == plays


def test_an_ignored_seed_is_a_warning_and_the_scale_of_an_evaluation_environment_none():
    assert proximo.PPO("toys:RandomEnds", eval_env="broken_envs:JaxLarge", **LARGE).warnings == []
    [sentence] = checked("broken_envs:SeedIgnored")[0]
    assert sentence.startswith("broken_envs:SeedIgnored gives different steps for the same seed and actions")


def test_one_instance_is_made_in_a_moment_and_no_vector_environment():
    made, started = [], time.perf_counter()

    def counted(make):
        return lambda *arguments: made.append(1) or make(*arguments)

    for env_id, make in (("CartPole-v1", "make"), ("broken_envs:Vector", "make_vector")):
        env = make_env(env_id)
        assert quick_check(dataclasses.replace(env, **{make: counted(getattr(env, make))}), env_id)[0] == []
    assert len(made) == 1
    assert time.perf_counter() - started < 0.5
