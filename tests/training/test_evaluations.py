"""The evaluations of a training: on which environment, and of how many episodes."""

from types import SimpleNamespace

import gymnasium as gym
import pytest

import proximo
from commands import BATCH, SMALL
from proximo.cli import main
from proximo.config import Config, override
from proximo.config.loading import changed_for_resume
from proximo.errors import ConfigError, EnvError
from proximo.evaluation.evaluate import evaluate_policy
from proximo.training.events import PeriodicEvaluation
from proximo.training.seed_run import SeedRun

import gym_toys
import toys
from gym_toys import Countdown

SETTINGS = {n: x for n, x in SMALL.items() if n not in ("tensorboard", "total_steps", "normalize_observation")}


class Long(Countdown):
    """Episodes of seven steps, each with the reward 1."""

    def __init__(self, length: int = 7):
        super().__init__(length)


def agent(env=Countdown, **settings):
    return proximo.PPO(env, preset=False, num_workers=0, **{**SETTINGS, **settings})


def last(learner, name="eval/return_mean"):
    return [row[name] for row in learner.history if name in row][-1]


EVALUATED = {
    "object": {"eval_env": lambda: Countdown(3)},
    "vector": {"eval_env": lambda num_envs: gym.vector.SyncVectorEnv([lambda: Countdown(3)] * num_envs), "eval_num_envs": 2},
    "id": {"eval_env": "gym_toys:Countdown", "eval_env_settings": "length=3"},
    "settings": {"eval_env_settings": {"length": 3}},
}


@pytest.mark.parametrize("given", EVALUATED)
def test_evaluations_of_learn_play_the_other_environment(given):
    learner = agent(**EVALUATED[given]).learn(BATCH)
    assert last(learner, "rollout/return_mean") == 5
    assert last(learner) == 3
    assert learner.evaluate(2).summary()["return_mean"] == 5, "that of the training"
    learner.set_env(Long)
    learner.learn(BATCH)
    assert last(learner, "rollout/return_mean") == 7
    assert last(learner) == 3


@pytest.mark.parametrize(
    ("env", "settings", "reached"),
    [
        (Long, {}, 7),
        (Long, {"length": 2}, 2),
        (Long(4), {}, 4),
        ("gym_toys:Countdown", {"length": 6}, 6),
        (None, {"length": 8}, 8),
    ],
)
def test_agent_evaluates_on_any_environment_with_the_same_spaces(env, settings, reached):
    levels = None if env else "0:3"
    assert agent().evaluate(2, env=env, env_settings=settings, levels=levels).summary()["return_mean"] == reached


def test_evaluation_on_another_kind_ignores_settings_of_workers():
    """The training steps in workers, and a JAX environment in no process."""

    class Same(gym_toys.Walk):
        observation_space, action_space = gym.spaces.Box(-9, 9, (3,)), gym.spaces.Discrete(2)

        def _observation(self, action=-1):
            return super()._observation()[:3]

    learner = agent(Same, eval_env=toys.RandomEnds(), overlap=True)
    made, config = learner._evaluated_on
    assert isinstance(made, toys.RandomEnds)
    assert (config.env.overlap, config.env.num_workers) == (False, -1)


def test_another_environment_of_a_loaded_agent_does_not_get_the_parameters_of_the_first(tmp_path):
    saved = agent("gym_toys:Countdown", eval_env="gym_toys:Countdown", eval_env_settings="length=3").save(tmp_path / "saved")
    for eval_env, reached in ((None, 3), ("gym_toys:Countdown", 3), (Countdown(4), 4), ("test_evaluations:Plain", 5)):
        assert last(proximo.load(saved, eval_env=eval_env).learn(BATCH)) == reached


class Plain(Countdown):
    """Its constructor has no parameters."""

    def __init__(self):
        super().__init__(5)


def test_object_is_needed_again_when_an_agent_is_loaded(tmp_path):
    saved = agent("gym_toys:Countdown", eval_env=lambda: Countdown(3)).save(tmp_path / "saved")
    message = r"eval_env = <.*lambda>> was an object in the program .*: pass it again, as proximo.load\(run, eval_env=…\)"
    with pytest.raises(EnvError, match=message):
        proximo.load(saved)
    assert main(["train", "--resume", str(saved), "--total-steps", "99999"]) == 2
    for eval_env, reached in ((lambda: Countdown(2), 2), ("gym_toys:Countdown", 5), ("", 5)):
        assert last(proximo.load(saved, eval_env=eval_env).learn(BATCH)) == reached
    assert evaluate_policy(proximo.load_policy(saved), 2, ["greedy"]).played["env"] == "gym_toys:Countdown", "the policy can act"


OBJECT = " requires a new environment, but <.* was given as an object: use agent.evaluate"
REFUSED = {
    "spaces": (lambda: agent(eval_env=gym_toys.Walk), r"The observation space of <gym_toys.Walk> is Box\(4,\) float32, but the policy is for Box\(2,\)"),
    "no parameter": (lambda: agent(eval_env="gym_toys:Countdown", eval_env_settings="size=3"), r"^eval_env_settings: gym_toys:Countdown has no parameter 'size'"),
    "no parameter of the training's environment": (lambda: agent("gym_toys:Countdown", eval_env_settings="size=3"), r"^eval_env_settings: gym_toys:Count"),
    "parameter of the training": (lambda: agent("gym_toys:Countdown", env_settings="length=4", eval_env="gym_toys:Walk"), r"^env_settings: gym_toys:Walk has no parameter 'length'"),
    "no parameter in a run": (lambda: proximo.train("CartPole-v1", eval_env_settings="size=3"), r"^eval_env_settings: CartPole-v1 has no parameter 'size'"),
    "no evaluation": (lambda: agent(eval_env="gym_toys:Countdown", eval_episodes=0), r"eval_env = gym_toys:Countdown has no effect with eval_episodes = 0"),
    "an object with parameters": (lambda: evaluate_policy(agent(lambda length=5: Countdown(length)), 2, env_settings={"length": 3}), rf"^env_settings = \{{'length': 3\}}{OBJECT}"),
    "an object on levels": (lambda: evaluate_policy(agent(lambda: Countdown(5)), 2, levels="0:3"), rf"^levels = '0:3'{OBJECT}"),
    "train": (lambda: proximo.train("gym_toys:Countdown", eval_env=Countdown), r"eval_env = <class .*: expected an id"),
    "resume": (lambda: changed_for_resume(override(Config(), {"id": "x"}), {"eval_env": "y"}), r"eval_env cannot change when a run is resumed"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_evaluation_environment_that_does_not_fit_is_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        make()


def number(step=10_000, length=10.0, evaluated=0, last=None, on_jax=False, num_envs=8, **settings):
    config = override(Config(), {"id": "toy", "total_steps": 102_400, "num_envs": num_envs, **settings})
    backend = SimpleNamespace(config=config, episodes_together=0 if on_jax else min(num_envs, config.run.eval_episodes))
    seed_run = SimpleNamespace(
        window=SimpleNamespace(recent_mean=lambda name: length),
        last_evaluation=last and {"length_mean": last},
        evaluation_steps=evaluated,
    )
    training = SimpleNamespace(config=config, backend=backend, seed_runs=[seed_run], reporter=None, total=config.total_updates)
    evaluation = PeriodicEvaluation(training)
    return evaluation.num_episodes(SimpleNamespace(step=step, update=step // config.batch_size))


@pytest.mark.parametrize(
    ("expected", "situation"),
    [
        (32, {}),  # 320 of 1,000 steps
        (24, {"length": 40.0}),  # 3 rounds of 8 episodes: 960 steps
        (8, {"length": 40.0, "evaluated": 500}),
        (8, {"length": 10.0, "last": 100.0}),  # greedy episodes are longer
        (0, {"length": 200.0}),
        (0, {"length": None}),  # no episode has ended
        (0, {"length": 300.0, "num_envs": 1}),  # 3 episodes tell too little
        (5, {"length": 200.0, "num_envs": 1}),
        (2, {"length": 200.0, "num_envs": 2, "eval_episodes": 2}),
        (32, {"length": 200.0, "eval_every": 10_000}),
        (32, {"length": 200.0, "on_jax": True}),
        (32, {"length": 200.0, "step": 102_400, "evaluated": 10**6}),  # the end
    ],
)
def test_evaluations_before_the_end_take_a_tenth_of_the_steps(expected, situation):
    assert number(**situation) == expected


def test_evaluations_of_a_resumed_training_count_the_earlier_ones(tmp_path, monkeypatch):
    """Episodes of EveryThird have 3 to 9 steps."""
    played = []

    def evaluated(self, step, *arguments, **named):
        summary = original(self, step, *arguments, **named)
        played.append((step, self.evaluation_steps))
        return summary

    original = SeedRun.evaluated
    monkeypatch.setattr(SeedRun, "evaluated", evaluated)
    settings = {"num_envs": 2, "num_steps": 32, "num_minibatches": 1, "num_epochs": 1, "num_workers": 0, "eval_episodes": 8}
    folder = {"runs_dir": str(tmp_path), "name": "r", "tensorboard": False, "hidden_sizes": 4}
    [result] = proximo.train("gym_toys:EveryThird", total_steps=1280, **settings, **folder)
    proximo.resume(result.run_dir, total_steps=2560)
    assert [step for step, _ in played].count(1280) == 1
    assert played[-1][0] == 2560
    used = [steps for _, steps in played]
    assert used == sorted(used)
    assert 128 - 9 * 8 < used[-1] <= 256 + 9 * 2  # of a tenth, up to an estimate of the length that is too small
    assert all(after <= 0.1 * step + 9 * 2 for step, after in played)
    assert used[[step for step, _ in played].index(1280)] > 0


def test_evaluation_with_nan_is_one_warning():
    class Late(toys.Broken):
        default_params = {"observation": 40, "reward": -1}  # noqa: RUF012

    settings = {"num_envs": 4, "num_steps": 8, "num_minibatches": 1, "hidden_sizes": 4, "eval_max_steps": 60, "eval_every": 32}
    agent = proximo.PPO(toys.Broken, preset=False, eval_env=Late, **settings)
    agent.learn(96)
    [warning] = [warning for warning in agent.warnings if "NaN" in warning]
    assert warning.startswith("In the evaluation at step 32, the environment returned NaN or infinity: check its reset and step.")
