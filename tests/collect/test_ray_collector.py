"""Rollouts of parts of the environments, joined. The actors are objects of this process; test_ray_actors.py has those of Ray."""

import sys

import cloudpickle
import equinox as eqx
import jax
import numpy as np
import pytest

from proximo.cli import main
from proximo.collect import GymnasiumCollector
from proximo.collect.gymnasium_programs import GymnasiumPrograms
from proximo.collect.ray_collector import RayCollector, RolloutActor, RolloutActors
from proximo.config import Config, override
from proximo.envs.gymnasium.environment import from_factory
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.errors import ConfigError
from proximo.settings import make_config
from proximo.spaces import OBSERVATION

import gym_toys
from helpers import backend_of, bits

SETTINGS = {
    "id": "toy", "num_envs": 4, "num_steps": 16, "num_epochs": 1, "num_minibatches": 2, "total_steps": 6400, "hidden_sizes": (8,),
    "memory": "gru", "memory_size": 8, "sequence_length": 4, "burn_in": 2, "observe_reward": True, "towers": "shared", "stagger_steps": 9,
    "normalize_observation": True, "normalize_reward": True, "num_workers": 0, "actors": 2, "diagnose_every": -1,
}  # fmt: skip
CONFIG = override(Config(), SETTINGS)
ENV = from_factory(gym_toys.Walk, "toy", Preprocessing())
PROGRAMS = GymnasiumPrograms(CONFIG, ENV)


class LocalActors(RolloutActors):
    """Actors in this process. In the call number ``n``, the actors in ``lost[n]`` die."""

    def __init__(self, lost=None):
        super().__init__(CONFIG, ENV)
        self.lost, self.calls, self.keys = lost or {}, 0, []
        self.actors = [self.make(part) for part in self.parts]

    def make(self, part):
        return RolloutActor(cloudpickle.dumps((CONFIG, ENV)), (), part)

    def call(self, policy, *arguments):
        parts = [actor.run(policy, *arguments) for actor in self.actors]
        for i in self.lost.get(self.calls, ()):
            parts[i], self.actors[i] = None, self.make(self.parts[i])
        self.calls += 1
        self.keys.append(arguments[0].tolist())
        return parts

    def close(self):
        for actor in self.actors:
            actor.close()


def updates(collector, count):
    """Rollouts, metrics and running returns of a training, and the state after it."""
    trainer, made = backend_of(collector), []
    state = trainer.join([collector.init(jax.random.key(0))])
    try:
        for _ in range(count):
            state, metrics = trainer.update(state)
            metrics = {name: x for name, x in metrics.items() if not name.startswith("time")}
            running, rollout = state.learner.reward_normalizer.running_return, jax.tree.map(np.array, trainer.last_rollout)
            made.append((rollout, metrics, trainer.last_episodes, running.tolist()))
    finally:
        trainer.close()
    return made, state


def on_actors(count, lost=None):
    collector = RayCollector(CONFIG, ENV, PROGRAMS)
    collector.environments = actors = LocalActors(lost)
    return *updates(collector, count), actors


def test_training_on_two_actors_equals_two_local_groups():
    """Bit for bit: the same seeds, noise, starts, memories, burn-in, rewards, episodes and learner."""
    local, state = updates(GymnasiumCollector(override(CONFIG, {"overlap": True}), ENV, PROGRAMS), 3)
    made, other, _ = on_actors(3)
    for (rollout, *others), (rollout2, *others2) in zip(local, made, strict=True):
        assert bits(rollout) == bits(rollout2)
        assert others == others2
    assert bits(state.learner) == bits(other.learner)
    assert {episode.env for _, _, episodes, _ in made for episode in episodes} == {0, 1, 2, 3}


def test_lost_actor_leaves_invalid_steps_and_begins_new_episodes():
    made, state, _ = on_actors(3, lost={1: (1,)})
    assert [x == 0 for x in made[1][-1]] == [False, False, True, True]
    before, lost, after = (rollout for rollout, *_ in made)
    assert lost.valid[:, :2].all()
    assert not lost.valid[:, 2:].any()
    assert not lost.burn_in_steps.valid[:, 2:].any()
    assert (after.episode_start[0, 2:] & after.valid[0, 2:]).all(), "new episodes"
    assert not (after.observation[OBSERVATION][0, 2:] == before.observation[OBSERVATION][0, 2:]).all(), "with new seeds"
    assert not np.array_equal(np.asarray(jax.tree.leaves(after.last_memory)[0][:2]), 0)
    assert not np.any(after.burn_in_steps.valid[:, 2:]), "an empty memory"
    assert {episode.env for episode in made[1][2]} <= {0, 1}
    assert bool(state.healthy)
    statistics = state.learner.policy.normalizer[OBSERVATION]
    assert float(statistics.count[0]) == 16 * 4 * 3 - 16 * 2, "only valid steps are counted"


def test_an_actor_sends_no_module():
    """Equinox never frees a module that was unpickled."""
    actor = LocalActors().actors[0]
    policy, key = jax.tree.leaves(PROGRAMS.init(jax.random.key(0)).learner.policy), jax.random.key_data(jax.random.key(0))
    part = actor.run([np.asarray(x) for x in policy], np.asarray(key), None)
    actor.close()
    assert not any(isinstance(x, eqx.Module) for x in jax.tree.leaves(part, is_leaf=lambda x: isinstance(x, eqx.Module)))


def test_an_update_is_collected_again_if_all_actors_are_lost():
    made, _, actors = on_actors(1, lost={0: (0, 1)})
    assert len(actors.keys) == 2
    assert actors.keys[0] != actors.keys[1], "with other seeds, which may be why they died"
    assert made[0][0].valid.all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"actors": 4, "num_envs": 10}, "actors = 4 does not divide num_envs = 10: choose a divisor, such as 2."),
        ({"actors": 8, "num_envs": 4}, "actors = 8 does not divide num_envs = 4: choose a divisor, such as 4."),
        ({"ray": "local"}, "Ray's own variable RAY_ADDRESS"),
        ({"actor_cpus": 1}, "Ray reserves no CPUs for actors"),
        ({"actors": 4, "overlap": True, "num_envs": 4}, "Each of 4 actors steps 1 of num_envs = 4 environments, but num_workers = -1 with overlap = true needs 2: choose num_envs = 8 or more"),
        ({"actors": 4, "num_workers": 3, "num_envs": 8}, "num_workers = 3 with overlap = false needs 3"),
    ],
)  # fmt: skip
def test_settings_of_actors_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        make_config("CartPole-v1", settings, preset=False)
    assert message in str(error.value)


def test_actors_without_ray_are_answered_before_a_run_directory_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    arguments = ["train", "CartPole-v1", "--actors", "2", "--total-steps", "2048", "--runs-dir", str(tmp_path)]
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith(
        "proximo: actors (Ray) needs a library that is not installed: pip install 'proximo[ray]'.\n"
    )
    assert list(tmp_path.iterdir()) == []
