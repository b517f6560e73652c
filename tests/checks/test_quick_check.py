"""The quick check reports in a moment, in one sentence, what would make a training fail."""

import time

import pytest

import proximo
from proximo.checks import jax_play, quick, quick_check
from proximo.envs import GymnasiumEnvironment, make_env
from proximo.errors import EnvError
from proximo.networks.recurrent import select
from proximo.tracking.reporter import Reporter


@pytest.mark.parametrize("env_id", ["CartPole-v1", "gymnax:CartPole-v1", "proximo:PocMemory", "broken_envs:Masked"])
def test_sound_environment_passes_without_warnings(env_id):
    assert quick_check(make_env(env_id), env_id).warnings == []


def test_cartpole_takes_less_than_half_a_second():
    env = make_env("CartPole-v1")
    started = time.perf_counter()
    quick_check(env, "CartPole-v1")
    assert time.perf_counter() - started < 0.5


FAULTS = {
    "broken_envs:WrongShape": r"returned observation of shape \(1, 2\).* `proximo check broken_envs:WrongShape` reports the details\.",
    "broken_envs:NanReward": r"returned the reward nan: expected a finite number",
    "broken_envs:TerminatedAsInt": r"returned terminated = 0: expected True or False",
    "broken_envs:Raises": r"raised IndexError: list index out of range \(broken_envs.py, line \d+\)",
    "broken_envs:JaxBranch": r"raised TracerBoolConversionError.*use jnp.where",
    "odd_envs:FiveValues": r"step returns 5 values: expected",
}


@pytest.mark.parametrize("env_id", FAULTS)
def test_fault_raises_one_sentence(env_id):
    with pytest.raises(EnvError, match=FAULTS[env_id]) as raised:
        quick_check(make_env(env_id), env_id)
    assert "\n" not in str(raised.value)


def test_nan_reward_in_jax_is_an_error():
    class Nan(type(make_env("toys:RandomEnds"))):
        def step(self, key, state, action, params):
            result = super().step(key, state, action, params)
            return *result[:2], result[2] * float("nan"), *result[3:]

    with pytest.raises(EnvError, match=r"nan.step gave the reward nan in random step \d+: expected a finite number"):
        quick_check(Nan(), "nan")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "gymnax:CartPole-v1", "toys:RandomEnds"])
def test_up_to_a_hundred_random_steps_are_seen(env_id):
    seen = quick_check(make_env(env_id), env_id).seen
    steps, per_step = len(seen.rewards), seen.rewards[0].size
    assert 8 <= steps <= 104
    assert all(len(values) > steps * per_step for values in seen.observations)


def test_steps_of_a_jax_environment_compile_once(monkeypatch):
    traced = []
    monkeypatch.setattr(quick, "SECONDS", 60.0)
    monkeypatch.setattr(jax_play, "select", lambda *arguments: traced.append(1) or select(*arguments))
    counts = []
    for steps in (8, 24):
        traced.clear()
        monkeypatch.setattr(quick, "MAX_STEPS", steps)
        assert len(quick_check(make_env("gymnax:CartPole-v1"), "gymnax:CartPole-v1").seen.rewards) == steps
        counts.append(len(traced))
    assert counts[0] == counts[1]


def test_jax_episodes_that_end_begin_again():
    seen = quick_check(make_env("broken_envs:JaxLarge"), "broken_envs:JaxLarge").seen
    assert seen.rewards[:6].T.tolist() == [[1e5, 2e5, 3e5] * 2] * 4
    assert seen.observations[0].max() == 3e6


LARGE = {"normalize_observation": False, "normalize_reward": False}


@pytest.mark.parametrize("env_id", ["broken_envs:Large", "broken_envs:JaxLarge"])
def test_scales_are_warnings_of_a_training_and_of_an_agent(env_id, tmp_path, monkeypatch):
    monkeypatch.setattr(quick, "SECONDS", 60.0)  # the same number of steps for both, also on a slow machine

    class StoppedError(Exception):
        """Ends the training."""

    class Collects(Reporter):
        def warned(self, message):
            warnings.append(message)

        def started(self, config, run_dirs, summary):
            raise StoppedError

    warnings = []
    with pytest.raises(StoppedError):
        proximo.train(env_id, reporter=Collects(), runs_dir=str(tmp_path), **LARGE)
    assert warnings == proximo.PPO(env_id, **LARGE).warnings
    assert [message.split(" in the range")[0] for message in warnings] == [
        "Observations of random steps are",
        "Rewards of random steps are",
    ]


@pytest.mark.parametrize(
    ("env_id", "settings", "plays"),
    [
        ("gymnax:CartPole-v1", {"num_envs": 4}, False),
        ("gymnax:CartPole-v1", {"env_settings": "gravity=9"}, True),
        ("gymnax:Pendulum-v1", {"normalize_reward": False}, True),
        ("gymnax:CartPole-v1", {"preset": False}, True),
        ("gymnax:CartPole-v1", {"eval_env_settings": "gravity=9"}, True),
        ("toys:RandomEnds", {}, True),
    ],
)
def test_environment_plays_unless_it_trains_as_in_its_preset(env_id, settings, plays, tmp_path, monkeypatch):
    class StoppedError(Exception):
        """Ends the training."""

    class Stops(Reporter):
        def started(self, config, run_dirs, summary):
            raise StoppedError

    played, short = [], quick._short_jax
    monkeypatch.setattr(quick, "_short_jax", lambda env: played.append(env) or short(env))
    monkeypatch.setattr("proximo.checks.before_training.reuse", lambda key, make: make())  # no result of another test
    with pytest.raises(StoppedError):
        proximo.train(env_id, reporter=Stops(), runs_dir=str(tmp_path), **settings)
    assert len(played) == plays


def test_scale_of_an_evaluation_environment_is_no_warning():
    agent = proximo.PPO("toys:RandomEnds", eval_env="broken_envs:JaxLarge", **LARGE)
    assert agent.warnings == []


def test_ignored_seed_is_a_warning():
    (sentence,) = quick_check(make_env("broken_envs:SeedIgnored"), "broken_envs:SeedIgnored").warnings
    assert sentence.startswith("broken_envs:SeedIgnored gives different steps for the same seed and actions")


def test_one_instance_is_made_and_no_vector_environment():
    made = []
    single, vector = make_env("broken_envs:Walk"), make_env("broken_envs:Vector")

    def counted(make):
        return lambda *arguments: made.append(1) or make(*arguments)

    def replaced(env, **parts):
        fields = {name: getattr(env, name) for name in ("id", "observation_space", "action_space", "spec", "make", "make_vector")}
        return GymnasiumEnvironment(**{**fields, **parts})

    assert quick_check(replaced(single, make=counted(single.make)), "single").warnings == []
    assert len(made) == 1
    assert quick_check(replaced(vector, make_vector=counted(vector.make_vector)), "vector").warnings == []
    assert len(made) == 1
