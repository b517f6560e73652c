"""Environments of several agents: each agent is a column, and an absent one leaves padding."""

import dataclasses
import functools
import json

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from commands import final_state
from proximo import ppo
from proximo.collect import GymnasiumCollector
from proximo.collect.environment import preprocessing_of
from proximo.config import Config, override
from proximo.envs.agent_inputs import with_agent_inputs
from proximo.envs.custom import from_object
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.stepper import environment_seeds
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.envs.level_seeds import JaxLevels, LevelRange
from proximo.errors import ConfigError, EnvError
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.rendering.play import make_player, play, policy_agent
from proximo.spaces import Box, Discrete
from proximo.types import GymnasiumCollectorState

import gym_toys
import toys
from helpers import bits, difference, drawn_policy, kill_first_worker, parameters_of, small_collector

AGENTS, ENVS, STEPS = 3, 4, 24
FULL_BATCH = {"num_epochs": 1, "num_minibatches": 1, "optimizer": "optax:sgd", "learning_rate": 1.0, "normalize_reward": True}
SMALL = {"id": "toy", "num_workers": 0, "hidden_sizes": (8,), "memory_size": 8, "normalize_observation": False}


class ActionCounts(toys.Counting):
    """Episodes of five steps, whose rewards depend on the action."""

    default_params = {"shortest": 5, "longest": 5}  # noqa: RUF012

    def step(self, key, state, action, params):
        state, observation, reward, *rest = super().step(key, state, action, params)
        return state, observation, reward + 10.0 * action, *rest


def jax_rollouts(env, num_envs=ENVS, count=2, **settings):
    """The first rollouts of a fresh learner, and the learner."""
    settings = {"num_envs": num_envs, "num_steps": STEPS, "normalize_observation": False, **settings}
    collector = small_collector(env, **settings)
    state, collect, rollouts = jax.jit(collector.init)(jax.random.key(0)), jax.jit(collector.collect), []
    policy, now, metrics = drawn_policy(collector.env, collector.config), state.collector, []
    for _ in range(count):
        now, rollout, found = collect(policy, now)
        rollouts.append(rollout)
        metrics.append(found)
    return dataclasses.replace(state.learner, policy=policy), rollouts, metrics


def gymnasium_rollouts(make, num_envs=ENVS, count=2, **settings):
    """The same for a Gymnasium environment, or one with PettingZoo's interface."""
    config = override(Config(), {**SMALL, "num_envs": num_envs, "num_steps": STEPS, **settings})
    _, env = from_object(make, {}, preprocessing_of(config))
    collector = GymnasiumCollector(config, env)
    policy, state, rollouts, metrics = drawn_policy(env, config), GymnasiumCollectorState(jax.random.key(5)), [], []
    for _ in range(count):
        state, rollout, found = collector.collect(policy, state)
        rollouts.append(jax.tree.map(jnp.asarray, rollout))
        metrics.append(found)
    collector.environments.close()
    return rollouts, metrics


def joined(rollouts, name):
    return np.concatenate([np.asarray(getattr(rollout, name)) for rollout in rollouts])


def episodes_of(rollouts):
    """For each episode that began and ended in the rollouts: column, first step, last step."""
    start, valid = joined(rollouts, "episode_start"), joined(rollouts, "valid")
    done = (joined(rollouts, "terminated") | joined(rollouts, "truncated")) & valid
    found = []
    for column in range(start.shape[1]):
        ends = np.flatnonzero(done[:, column])
        for first in np.flatnonzero(start[:, column] & valid[:, column]):
            later = ends[ends >= first]
            found += [(column, int(first), int(later[0]))] if len(later) else []
    return found


def test_an_agent_that_dies_at_step_t_has_t_plus_1_valid_steps_and_is_absent_until_all_have_ended():
    _, rollouts, metrics = jax_rollouts(toys.Team())
    valid, observation = joined(rollouts, "valid"), joined(rollouts, "observation")
    episodes = episodes_of(rollouts)
    assert len(episodes) > 15
    assert len({last - first for _, first, last in episodes}) > 3
    for column, first, last in episodes:
        length = int(observation[first, column, 1])
        assert (last - first + 1, valid[first : last + 1, column].all()) == (length, True)
        team = slice(column // AGENTS * AGENTS, column // AGENTS * AGENTS + AGENTS)
        longest = int(observation[first, team, 1].max())
        if first + longest <= len(valid):
            assert not valid[last + 1 : first + longest, column].any()
    assert not valid.all()
    # Rewards are 1 … length, so the sum of an agent follows from its length.
    totals = [(sum(range(1, last - first + 2))) for _, first, last in episodes]
    counted = sum(float(m["rollout/episodes"] * m["rollout/return_mean"]) for m in metrics)
    assert counted == pytest.approx(sum(totals))
    teams = sum(float(m["rollout/team_episodes"] * m["rollout/team_return_mean"]) for m in metrics)
    assert 0 < teams <= counted


def test_time_limit_truncates_the_agents_that_are_left_with_the_value_of_their_own_observation():
    _, rollouts, _ = jax_rollouts(toys.Team(), max_episode_steps=5)
    truncated, terminated = joined(rollouts, "truncated"), joined(rollouts, "terminated")
    episodes = episodes_of(rollouts)
    assert truncated.any()
    assert terminated.any()
    assert max(last - first + 1 for _, first, last in episodes) == 5
    assert ((joined(rollouts, "bootstrap_value") != 0) == truncated).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_gymnasium_environments_give_what_their_agents_return(workers):
    """Each agent's columns hold what its own environment returns to the same actions, from the same seed."""
    _, env = from_object(lambda: gym_toys.Team(late=True), {})
    vector_env = env.open(ENVS, 40, VectorOptions(num_workers=workers))
    buffer, rng = vector_env.buffer, np.random.default_rng(0)
    try:
        buffer.clear()
        vector_env.reset(3)
        for t in range(40):
            buffer.action[t] = rng.integers(0, 3, buffer.action[t].shape)
            vector_env.send(t, 0)
            vector_env.receive(t, 0)
        compared = 0
        for k, seed in enumerate(environment_seeds(ENVS, 3)):
            one = gym_toys.Team(late=True)
            seen, _ = one.reset(seed=seed)
            for t in range(40):
                present = list(one.agents)
                columns = {name: k * AGENTS + i for i, name in enumerate(one.possible_agents)}
                assert [bool(buffer.valid[t, column]) for column in columns.values()] == [name in present for name in columns]
                for name in present:
                    np.testing.assert_array_equal(buffer.observation[0][t, columns[name]], seen[name])
                seen, rewards, terminated, truncated, _ = one.step({name: buffer.action[t, columns[name]] for name in present})
                for name, column in columns.items():
                    expected = (rewards[name], terminated[name], truncated[name]) if name in present else (0, False, False)
                    got = (buffer.reward[t, column], buffer.terminated[t, column], buffer.truncated[t, column])
                    assert got == pytest.approx(expected)
                    compared += name in present
                if not one.agents:
                    seen, _ = one.reset()
        assert compared > 200
        assert not buffer.valid.all()
        first = buffer.episode_start[:, AGENTS - 1] & buffer.valid[:, AGENTS - 1]
        assert (buffer.episode_start[:, 0] & ~first).any()  # the late agent starts later than the others
    finally:
        vector_env.close()


def test_agents_that_share_nothing_are_environments_of_their_own():
    """N environments of A agents give the same rollout as N·A environments of one."""
    settings = {"memory": "gru", "observe_action": True}
    _, teams, _ = jax_rollouts(toys.Team(ActionCounts(), AGENTS), ENVS, **settings)
    _, alone, _ = jax_rollouts(ActionCounts(), ENVS * AGENTS, **settings)
    assert bits(teams) == bits(alone)
    names = [str(i) for i in range(AGENTS)]
    fixed = gym_toys.Countdown
    teams, _ = gymnasium_rollouts(lambda: gym_toys.Team(fixed, names), ENVS)
    alone, _ = gymnasium_rollouts(lambda: fixed(), ENVS * AGENTS)
    assert bits(teams) == bits(alone)


def learned(learner, rollout):
    return parameters_of(jax.jit(ppo.update)(learner, rollout)[0])


def test_order_of_columns_does_not_matter():
    learner, (rollout, _), _ = jax_rollouts(toys.Team(), **FULL_BATCH)
    order = np.random.default_rng(0).permutation(ENVS * AGENTS)

    def permuted(path, x):
        return x[order] if path[0].name.startswith("last_") else x[:, order]

    shuffled = jax.tree_util.tree_map_with_path(permuted, rollout)
    expected = learned(learner, rollout)
    assert difference(parameters_of(learner), expected) > 1e-4
    np.testing.assert_allclose(learned(learner, shuffled), expected, rtol=1e-4, atol=1e-5)
    mixed = dataclasses.replace(shuffled, reward=rollout.reward)  # rewards of other agents
    assert difference(learned(learner, mixed), expected) > 1e-3


def test_padding_of_absent_agents_changes_no_gradient():
    learner, (rollout, _), _ = jax_rollouts(toys.Team(), normalize_advantage="batch", **FULL_BATCH)
    assert 0.05 < float(1 - rollout.valid.mean()) < 0.7

    def with_garbage(where):
        noise = jnp.asarray(np.random.default_rng(0).normal(size=rollout.reward.shape), jnp.float32)
        changes = {name: jnp.where(where, 50 * noise, getattr(rollout, name)) for name in ("reward", "value", "log_prob")}
        observation = jnp.where(where[..., None], 7.0, rollout.observation)
        return dataclasses.replace(rollout, observation=observation, **changes)

    expected = learned(learner, rollout)
    assert bits(learned(learner, with_garbage(~rollout.valid))) == bits(expected)
    assert difference(learned(learner, with_garbage(rollout.valid & ~rollout.episode_start)), expected) > 1e-3


def refusal(make):
    with pytest.raises((EnvError, ConfigError)) as caught:
        from_object(make, {})
    return str(caught.value)


def test_agents_that_cannot_share_a_policy_are_refused():
    unequal = gym_toys.altered(gym_toys.Team, action_space=lambda self, agent: gym.spaces.Discrete(2 + (agent == "b")))
    assert "have different action spaces, Discrete(2) (a) and Discrete(3) (b): pad them with SuperSuit" in refusal(unequal)
    in_turns = gym_toys.altered(gym_toys.Team, agent_iter=lambda self: iter(()))
    assert "take turns: expected agents that act at the same time" in refusal(in_turns)
    assert "has no agents" in refusal(lambda: gym_toys.Team(names=()))
    with pytest.raises(ConfigError, match=r"has several agents: .*frame_stack"):
        from_object(gym_toys.Team, {}, Preprocessing(frame_stack=2))

    class Changing(gym_toys.Team):
        def __init__(self, change):
            super().__init__()
            self.change = change

        def step(self, actions):
            observations, *others = super().step(actions)
            self.agents = self.change(self.agents)
            return observations, *others

    for change, message in (
        (
            lambda agents: agents[:1],
            r"for [abc] removed the agent, whose episode has not ended: expected in agents those that act",
        ),
        (lambda agents: ["a", "b", "c"], r"for [abc] kept the agent, whose episode has ended"),
        (lambda agents: [*agents, "d"], r"has agents that are not in its possible_agents: d"),
    ):
        with pytest.raises(EnvError, match=message):
            gymnasium_rollouts(functools.partial(Changing, change))


def test_what_an_absent_agent_observes_may_be_nan():
    class Blind(toys.Counting):
        def step(self, key, state, action, params):
            state, observation, reward, terminated, *rest = super().step(key, state, action, params)
            dead = state[0] > state[1]
            return state, jnp.where(dead, jnp.nan, observation), jnp.where(dead, jnp.nan, reward), terminated, *rest

    remembering = {"memory": "gru", "observe_reward": True, "normalize_observation": True}
    learner, (rollout, *_), _ = jax_rollouts(toys.Team(Blind()), **remembering)
    assert not rollout.valid.all()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(rollout))
    assert np.isfinite(learned(learner, rollout)).all()
    agent = proximo.PPO(lambda: toys.Team(Blind()), preset=False, num_envs=4, num_steps=16, hidden_sizes=(8,)).learn(256)
    assert np.isfinite(agent.evaluate(8).episode_return).all()


class Uneven(gym_toys.Team):
    """The second agent is truncated in step 5, the others much later."""

    def __init__(self):
        super().__init__(gym_toys.Countdown)
        for env, length in zip(self.envs.values(), (50, 6, 50), strict=True):
            env.length, env.truncate = length, True


def test_lost_worker_leaves_the_last_value_of_an_agent_that_was_truncated_before():
    config = override(Config(), {**SMALL, "num_envs": 1, "num_steps": STEPS, "num_workers": 1, "memory": "gru"})
    _, env = from_object(Uneven, {})
    found = []
    for lost in ((), (6,)):
        collector = GymnasiumCollector(config, env)
        kill_first_worker(collector.environments.open(), lost)
        collector.environments.warn = lambda message: None
        _, rollout, _ = collector.collect(drawn_policy(env, config), GymnasiumCollectorState(jax.random.key(3)))
        found.append((np.asarray(rollout.truncated)[5], np.asarray(rollout.bootstrap_value)[5]))
        collector.environments.close()
    (alone, value), (with_others, same_value) = found
    assert (alone.tolist(), with_others.tolist()) == ([False, True, False], [True, True, True])
    assert same_value[1] == value[1] != 0


def test_minibatch_size_counts_the_steps_of_all_agents():
    settings = {"preset": False, "num_envs": 4, "num_steps": 25, "hidden_sizes": (8,)}
    agent = proximo.PPO(gym_toys.Team, minibatch_size=150, **settings)
    assert agent.config.ppo.num_minibatches == 2
    agent.learn(200)  # and again, with the settings that the first one has
    assert agent.learn(100).step == 300
    with pytest.raises(ConfigError, match=r"minibatch_size = 100 is no multiple of the 3 agents"):
        proximo.PPO(gym_toys.Team, minibatch_size=100, **settings)
    # Two numbers of agents in one process
    pair = proximo.PPO(lambda: gym_toys.Team(names=("a", "b")), minibatch_size=100, **settings).learn(100)
    assert (pair.config.ppo.num_minibatches, pair.env.num_agents) == (2, 2)


def test_evaluation_plays_episodes_of_environments_and_watching_plays_the_same():
    """The most probable actions, of agents that die at different times."""
    drawn = gym_toys.altered(toys.Team, render=lambda self, state, params: np.zeros((8, 8, 3), np.uint8))
    remembering = {"memory": "gru", "memory_size": 8, "observe_reward": True}
    for make in (drawn, gym_toys.Team, functools.partial(gym_toys.Team, late=True)):
        agent = proximo.PPO(make, preset=False, num_envs=4, num_steps=8, hidden_sizes=(8,), seed=2, **remembering)
        episodes = agent.evaluate(9)
        rows, summary = episodes.rows(), episodes.summary()
        assert (summary["episodes"], len(rows)) == (9, 27)
        assert {row["agent"] for row in rows} == {0, 1, 2}
        teams = [sum(row["return"] for row in rows if row["index"] == i) for i in range(9)]
        assert summary["team_return_mean"] == pytest.approx(np.mean(teams))
        player = make_player(agent.env, agent.config, 0, EVALUATION_STREAM)
        played = [step for step in play(player, policy_agent(agent.policy), 3, 1000) if step.ended]
        assert [step.episode_return for step in played] == pytest.approx(teams[:3], rel=1e-5)
        joins = [2 * (r["agent"] == 2 and getattr(make, "keywords", {}).get("late", False)) for r in rows]
        last = [max(r["length"] + j for r, j in zip(rows, joins, strict=True) if r["index"] == i) for i in range(3)]
        assert [step.step for step in played] == last


def test_agent_id_and_state_are_entries_of_each_observation():
    """Without ``state()`` of the environment, the state is what all agents observe, with zeros for those that observe nothing."""
    for make in (toys.Team, gym_toys.Team):
        asked = Preprocessing(agent_id=True, needs_state=True)
        _, env = from_object(make, {}, asked)
        size = AGENTS * env.observation_space.spaces[1][1].shape[0]
        assert [(name, space.shape[0]) for name, space in env.observation_space.spaces[::2]] == [("agent_id", 3), ("state", size)]
        if make is toys.Team:
            _, rollouts, _ = jax_rollouts(env)
        else:
            rollouts, _ = gymnasium_rollouts(make, agent_id=True, privileged=("state",))
        seen, valid = rollouts[0].observation, np.asarray(rollouts[0].valid)
        ids = np.tile(np.eye(AGENTS), (STEPS, ENVS, 1))
        np.testing.assert_array_equal(seen["agent_id"][valid], ids[valid])
        together = np.where(valid[..., None], seen["observation"], 0.0).reshape(STEPS, ENVS, -1).repeat(AGENTS, 1)
        by_env = valid.reshape(STEPS, ENVS, AGENTS)
        # An agent that has just died has a last observation; on JAX, every agent has one.
        just_died = np.concatenate([np.zeros((1, ENVS), bool), (by_env[:-1] & ~by_env[1:]).any(2)])
        left_out = ~by_env.all(2) if make is toys.Team else just_died
        where = valid & ~left_out.repeat(AGENTS, 1)
        np.testing.assert_allclose(seen["state"][where], together[where], rtol=1e-6)
        assert 0 < valid.mean() < 1


def test_policy_that_observes_agent_id_acts_for_all_agents_in_order():
    agent = proximo.PPO(
        gym_toys.Team, preset=False, agent_id=True, privileged="state", num_envs=2, num_steps=4, num_minibatches=2
    )
    seen, ids = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), np.tile(np.eye(3, dtype=np.float32), (2, 1))
    actions, _ = agent.policy.predict(seen)
    np.testing.assert_array_equal(actions, agent.policy.predict({"observation": seen, "agent_id": ids})[0])
    with pytest.raises(ConfigError, match=r"observations of 2 agents were given, .*stack those of all 3 agents"):
        agent.policy.predict(seen[:2])
    for make in (gym_toys.Walk, toys.Counting):
        with pytest.raises(ConfigError, match=r"agent_id = true: .* has one agent"):
            proximo.PPO(make, agent_id=True)


def test_settings_that_add_entries_make_another_environment():
    entries = []
    for settings in ({}, {"agent_id": True}, {"privileged": ("state",)}, {}):
        agent = proximo.PPO("toys:Team", preset=False, num_envs=2, num_steps=4, num_minibatches=1, **settings)
        entries.append([name for name, _ in getattr(agent.env.observation_space, "spaces", ())])
    assert entries == [[], ["agent_id", "observation"], ["observation", "state"], []]


def test_the_world_state_of_an_environment_is_the_entry_state_also_with_levels():
    class Known(toys.Team):
        def world_state(self, state, params):
            return 7.0 + jnp.arange(2)

    for known in (Known(), JaxLevels(Known(), LevelRange(0, 5))):
        env = with_agent_inputs(known, "known", agent_id=False, needs_state=True)
        state, seen = env.reset(jax.random.key(0), env.default_params)
        _, after, *_ = env.step(jax.random.key(0), state, jnp.zeros(3, jnp.int32), env.default_params)
        for observed in (seen, after):
            np.testing.assert_array_equal(observed["state"], [[7.0, 8.0]] * 3)


def test_state_of_pettingzoo():
    pytest.importorskip("mpe2")
    agent = proximo.PPO("mpe2:simple_spread_v3", preset=False, privileged="state", num_envs=2, num_steps=8, env_settings={"N": 2})
    assert dict(agent.env.observation_space.spaces)["state"].shape == (24,)
    assert agent.learn(32).step == 32


@pytest.mark.parametrize(
    "settings",
    [{}, {"memory": "gru", "memory_size": 8, "sequence_length": 4, "burn_in": 2, "stagger_steps": 6, "observe_reward": True}],
    ids=["mlp", "gru"],
)
def test_resumed_training_and_stacked_seeds_equal_a_training_alone(tmp_path, settings):
    common = {"preset": False, "num_envs": 4, "num_steps": 8, "hidden_sizes": (8,), "normalize_reward": True, "eval_episodes": 0}
    train = functools.partial(proximo.train, "toys:Team", runs_dir=str(tmp_path), **common, **settings)
    [whole] = train(total_steps=128, name="whole", seed=1)
    [first] = train(total_steps=64, name="part", seed=1)
    [resumed] = proximo.resume(first.run_dir, total_steps=128)
    expected = final_state(whole.run_dir)
    assert final_state(resumed.run_dir) == expected
    assert final_state(train(total_steps=128, seed=2)[0].run_dir) != expected
    assert final_state(train(total_steps=128, seeds=2, seeds_mode="serial")[1].run_dir) == expected
    rows = [json.loads(line) for line in (resumed.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert all("time/agent_steps_per_second" in row for row in rows if "rollout/episodes" in row)
    assert sum(row["rollout/team_episodes"] for row in rows) > 3


class Team:
    """Agent i of two dies in step 2 + i. Some teams win, with the death of the last one."""

    num_agents, default_params = 2, ()
    observation_space, action_space = Box((1,)), Discrete(2)

    def reset(self, key, params):
        return (jnp.int32(0), jax.random.bernoulli(key)), jnp.zeros((2, 1))

    def step(self, key, state, action, params):
        time, wins = state[0] + 1, state[1]
        ended = time >= jnp.array([2, 3])
        return (time, wins), jnp.zeros((2, 1)), jnp.ones(2), ended, jnp.zeros(2, bool), {"success": wins & ended.all()}


def test_one_success_for_all_agents_is_that_of_the_last_step_of_the_environment():
    collector = small_collector(Team(), num_envs=50, num_steps=3)
    state = collector.init(jax.random.key(0))
    wins = np.asarray(state.collector.env_state[1])
    *_, metrics = collector.collect(state.learner.policy, state.collector)
    assert float(metrics["rollout/success_rate"]) == pytest.approx(wins.mean())
    agent = proximo.PPO(Team(), num_envs=4, num_steps=3)
    episodes = agent.evaluate(40)
    assert 0.2 < episodes.summary()["success_rate"] < 0.8
    assert (episodes.success[::2] == episodes.success[1::2]).all()
    assert sum(episodes.length[episodes.success]) == 2.5 * episodes.success.sum()
