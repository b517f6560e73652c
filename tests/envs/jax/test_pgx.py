"""Games of pgx: transitions from a move to the next one of the same player, opponents, self-play. Without pgx, these tests are skipped."""

import dataclasses
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from commands import BATCH, GRU, copied, final_state, rows, trained
from proximo.cli import main
from proximo.collect import JaxCollector, jax_vector
from proximo.collect.jax_collector import OPPONENT
from proximo.collect.self_play import NUM_PAST, PolicyPlayer, opponent, past_policies
from proximo.envs import Preprocessing, make_env
from proximo.envs.jax.pgx import names
from proximo.errors import ConfigError, EnvError
from proximo.settings import make_config

from adapted import LEGACY
from helpers import bits

library = pytest.importorskip("pgx")
GAME = "pgx:tic_tac_toe"
SMALL = {"num_envs": 8, "num_steps": 8, "hidden_sizes": (8,), "num_minibatches": 2, "num_epochs": 1}


class Scripted(NamedTuple):
    """An opponent whose moves are ``moves``, and which remembers how many it has made and what it saw last."""

    moves: jax.Array

    def init_memory(self):
        return jnp.int32(0), jnp.zeros((3, 3, 2))

    def move(self, memory, observation, key):
        return (memory[0] + 1, observation["observation"]), self.moves[memory[0]]


def play(side, own, replies):
    """A game of tic-tac-toe: the transitions of the agent, which makes the moves ``own``."""
    env, opponent, key = make_env(GAME, {"side": side}), Scripted(jnp.array(replies)), jax.random.key(0)
    step = jax.jit(env.step)
    state, observation = jax.jit(env.reset)(key, opponent)
    rows = [(observation, 0.0, False, False, False, state)]
    for move in own:
        state, observation, reward, terminated, truncated, info = step(key, state, jnp.int32(move), opponent)
        rows.append((observation, float(reward), bool(terminated), bool(truncated), bool(info["success"]), state))
    return rows


def board(observation):
    """The cells of the player, as X, and of the other one, as O."""
    mine, theirs = np.moveaxis(np.asarray(observation["observation"]), -1, 0) > 0
    return "".join("X" if a else "O" if b else "." for a, b in zip(mine.ravel(), theirs.ravel(), strict=True))


def test_a_game_by_hand_that_the_agent_wins_as_the_first():
    rows = play("first", [0, 1, 2], [3, 4, 5])
    assert [board(row[0]) for row in rows] == [".........", "X..O.....", "XX.OO....", "XXXOO...."]
    assert [row[1:5] for row in rows[1:]] == [(0.0, False, False, False)] * 2 + [(1.0, True, False, True)]
    legal = np.asarray(rows[1][0]["action_mask"])
    assert np.flatnonzero(~legal).tolist() == [0, 3]
    count, seen = rows[-1][-1].memory
    assert count == 2, "the opponent makes no move after the end"
    assert board({"observation": seen}) == "OO.X.....", "it sees the board from its own side"


def test_a_game_by_hand_that_the_agent_loses_as_the_second():
    """The opponent begins within the reset. The agent learns of the defeat in the transition of its last move."""
    rows = play("second", [3, 4], [0, 1, 2])
    assert [board(row[0]) for row in rows] == ["O........", "OO.X.....", "OOOXX...."]
    assert [row[1:5] for row in rows[1:]] == [(0.0, False, False, False), (-1.0, True, False, False)]


def test_a_draw_has_no_reward():
    rows = play("first", [4, 2, 3, 1, 8], [0, 6, 5, 7])
    assert [row[1] for row in rows] == [0.0] * 6
    assert [row[2] for row in rows] == [False] * 5 + [True]


def test_both_sides_are_drawn():
    env = make_env(GAME)
    _, observations = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), 200), env.default_params)
    second = np.asarray(observations["observation"]).any(axis=(1, 2, 3))
    assert 70 < second.sum() < 130


@pytest.mark.parametrize("name", ["backgammon", "connect_four", "kuhn_poker"])
def test_it_is_the_turn_of_the_agent_until_the_end(name):
    """Also where a player moves several times in a row. States, rewards and what the agent sees are those of a replay with pgx."""
    env, own = make_env(f"pgx:{name}"), library.make(name)
    step, own_step = jax.jit(env.step), jax.jit(own.step)

    def moved(game, move, key, player):
        """The game after a move, and what the player gains by it."""
        game = own_step(game, move, LEGACY(key))
        return game, float(game.rewards[player])

    total, ends = 0.0, 0
    for game in range(4):
        state, observation = env.reset(jax.random.key(game), env.default_params)
        for t in range(300):
            key = jax.random.key(1000 * game + t)
            assert int(state.game.current_player) == int(state.player)
            legal = np.flatnonzero(np.asarray(observation["action_mask"]))
            np.testing.assert_array_equal(observation["observation"], state.game.observation)
            key_own, key_replies = jax.random.split(key)
            move, player = jnp.int32(legal[t % len(legal)]), state.player
            now, gained = moved(state.game, move, key_own, player)
            while now.current_player != player and not (now.terminated or now.truncated):
                key_replies, key_move, key_game = jax.random.split(key_replies, 3)
                reply = jax.random.categorical(key_move, jnp.where(now.legal_action_mask, 0.0, -jnp.inf))
                now, more = moved(now, reply, key_game, player)
                gained += more
            state, observation, reward, terminated, truncated, _ = step(key, state, move, env.default_params)
            for field in ("observation", "legal_action_mask", "current_player", "terminated"):
                np.testing.assert_array_equal(getattr(state.game, field), getattr(now, field))
            assert float(reward) == gained
            np.testing.assert_array_equal(observation["observation"], own._observe(now, player))
            total += float(reward)
            if terminated or truncated:
                ends += 1
                break
            assert float(reward) == 0
    assert ends == 4
    assert total != 0


def test_the_moves_of_a_policy_are_those_that_it_samples():
    """A game against a policy with a memory that observes its previous action, replayed with pgx and ``policy.step``."""
    agent = proximo.PPO(GAME, **SMALL, memory="gru", memory_size=8, observe_action=True)
    policy, env, key = agent.policy.actor_critic, make_env(GAME, {"side": "first"}), jax.random.key(5)
    player, game = PolicyPlayer(policy), library.make("tic_tac_toe")
    state, _ = env.reset(key, player)
    memory, previous, never = policy.init_memory(1), policy.no_previous_step(1), jnp.zeros(1, bool)
    own = game.init(LEGACY(jax.random.split(key)[0]))
    for t in range(4):
        step_key = jax.random.key(100 + t)
        move = jnp.argmax(own.legal_action_mask).astype(jnp.int32)
        key_own, key_replies = jax.random.split(step_key)
        own = game.step(own, move, LEGACY(key_own))
        if not own.terminated:
            _, key_move, key_game = jax.random.split(key_replies, 3)
            seen = {"observation": own.observation[None].astype(jnp.float32), "action_mask": own.legal_action_mask[None]}
            acted = policy.step(memory, policy.with_previous_step(seen, never, previous), never, ~never, key_move)
            memory, previous = acted.memory, policy.previous_step(acted.action, jnp.zeros(1))
            own = game.step(own, policy.to_space(acted.action)[0], LEGACY(key_game))
        state, *_, terminated, _, _ = env.step(step_key, state, move, player)
        assert bits(state.game._x) == bits(own._x)
        assert terminated == own.terminated
        if terminated:
            break
    assert t > 1


def test_past_policies_are_replaced_and_play_in_half_of_the_rollouts():
    policy = proximo.PPO(GAME, **SMALL).policy.actor_critic
    old, new = (jax.tree.map(lambda x, n=n: jnp.full_like(x, n), policy) for n in (0, 1))
    choose, past, shares, is_old = jax.jit(opponent), past_policies(old, "past"), [], []
    assert past_policies(old, "current") == ()
    for i in range(400):
        player, past = choose(new, past, jax.random.key(i))
        leaf = jax.tree.leaves(past)[-1].reshape((NUM_PAST, -1))[:, 0]
        assert all((x.reshape((NUM_PAST, -1)) == leaf[:, None]).all() for x in jax.tree.leaves(past)), (
            "a copy is replaced as a whole"
        )
        shares.append(float(leaf.mean()))
        is_old.append(float(jax.tree.leaves(player)[-1].ravel()[0]) == 0)
    steps = {b - a for a, b in itertools.pairwise(shares)}
    assert steps == {0, 1 / NUM_PAST}, "one at a time"
    assert 0.4 < shares[-1] < 1
    expected = 0.5 * (1 - np.array(shares)).sum()
    assert 0.7 * expected < sum(is_old) < 1.3 * expected


def test_past_policies_play_and_are_kept():
    """Rollouts depend on the copies where one of them plays, and what is kept is what ``opponent`` returns."""
    collector = JaxCollector(make_config(GAME, **SMALL, opponents="past"), jax_vector.check_env(make_env(GAME), GAME))
    state, collect = collector.init(jax.random.key(0)), jax.jit(collector.collect)
    policy, differing, replaced = state.learner.policy, 0, 0
    others = jax.tree.map(lambda x: 300.0 * x if jnp.issubdtype(x.dtype, jnp.floating) else x, past_policies(policy, "past"))
    for seed in range(48):
        now = dataclasses.replace(state.collector, key=jax.random.key(seed))
        after, rollout, _ = collect(policy, dataclasses.replace(now, env_params=others))
        _, other, _ = collect(policy, now)
        player, kept = opponent(policy, others, jax.random.fold_in(jax.random.split(now.key, 4)[0], OPPONENT))
        assert bits(after.env_params) == bits(kept)
        replaced += bits(kept) != bits(others)
        is_past = bits(player.policy) != bits(policy)
        assert (bits(rollout.observation) != bits(other.observation)) == is_past
        differing += is_past
    assert 0 < differing < 48
    assert replaced > 0


def test_a_training_by_self_play_resumes_bit_for_bit(tmp_path, capsys):
    """With past policies in its state, and a memory of the opponent."""
    whole = trained(tmp_path, "whole", GAME, **GRU, opponents="past", checkpoint_every=4 * BATCH, keep_checkpoints=9)
    run_dir = copied(whole, tmp_path / "copy")
    assert main(["train", "--resume", f"{run_dir}@{8 * BATCH}"]) == 0
    assert "resumed at step 256" in capsys.readouterr().out
    assert final_state(run_dir) == final_state(whole)
    assert rows(run_dir) == rows(whole)
    assert any("env_params" in name for name in final_state(whole))


def test_all_moves_of_the_agent_are_learned_from():
    """No step is invalid, and a transition of the rollout is one move of the agent."""
    collector = JaxCollector(make_config(GAME, **SMALL), jax_vector.check_env(make_env(GAME), GAME))
    state = collector.init(jax.random.key(0))
    after, rollout, metrics = jax.jit(collector.collect)(state.learner.policy, state.collector)
    assert rollout.valid.all()
    ended = np.asarray(rollout.terminated)
    assert int(metrics["rollout/episodes"]) == ended.sum() > 5
    assert (np.asarray(rollout.reward)[~ended] == 0).all()
    starts = np.asarray(rollout.episode_start)[1:]
    np.testing.assert_array_equal(starts, ended[:-1])
    pieces = np.asarray(rollout.observation["observation"]).sum(axis=(2, 3, 4))
    assert set(pieces[1:][starts].tolist()) <= {0.0, 1.0}, "an empty board, or one move of the opponent"
    assert (np.diff(pieces, axis=0)[~starts] == 2).all()
    assert after.env_params == ()


def test_a_training_learns_not_to_lose(tmp_path):
    """Neither against random moves, nor against itself."""
    agent = proximo.PPO(GAME, seed=100, num_envs=64, num_steps=16, ent_coef=0.1, gamma=1.0)
    before, beginner = agent.evaluate(500).summary(), agent.save(tmp_path / "beginner")
    after = agent.learn(120_000).evaluate(500).summary()
    assert sum(before[name] for name in ("win_rate", "draw_rate", "loss_rate")) == pytest.approx(1)
    assert after["loss_rate"] < 0.15 < 0.3 < before["loss_rate"]
    assert after["win_rate"] == after["success_rate"]
    assert after["return_mean"] == pytest.approx(after["win_rate"] - after["loss_rate"])
    result = proximo.evaluate_policy(agent, 200, against=beginner)
    assert result.played["against"].startswith(str(beginner))
    assert result.episodes["greedy"].summary()["win_rate"] > 0.6
    assert proximo.evaluate(agent, 200, against=agent).summary()["loss_rate"] < 0.15
    assert agent.evaluate(500).summary() == after, "the opponents of other evaluations do not stay"


def test_wrong_opponents_are_one_sentence(tmp_path):
    agent = proximo.PPO(GAME, **SMALL)
    other = proximo.PPO("gymnax:CartPole-v1", **SMALL)
    with pytest.raises(ConfigError, match=r"plays gymnax:CartPole-v1: expected a policy for pgx:tic_tac_toe"):
        agent.evaluate(4, against=other)
    with pytest.raises(ConfigError, match=r"against = 'random': gymnax:CartPole-v1 is no two-player game"):
        other.evaluate(4, against="random")
    with pytest.raises(ConfigError, match="int is no policy: expected 'random', an agent, a policy, or a run"):
        agent.evaluate(4, against=3)
    games = [proximo.PPO(make_env(f"pgx:{name}"), **SMALL) for name in ("tic_tac_toe", "connect_four")]
    with pytest.raises(ConfigError, match="The observation space of the game that PPO"):
        games[0].evaluate(4, against=games[1])
    with pytest.raises(ConfigError, match=r"opponents is for two-player games, .* no effect on gymnax:CartPole-v1"):
        proximo.PPO("gymnax:CartPole-v1", opponents="past")
    with pytest.raises(ConfigError, match="opponents is for two-player games"):
        proximo.PPO("CartPole-v1", opponents="past")
    with pytest.raises(ConfigError, match="side = 'left': expected one of both, first, second"):
        make_env(GAME, {"side": "left"})
    with pytest.raises(ConfigError, match="has no parameter 'size'"):
        make_env(GAME, {"size": 4})
    with pytest.raises(ConfigError, match=r"randomize: .* has no parameters"):
        make_env(GAME, None, Preprocessing(randomize=lambda key, params: params))
    with pytest.raises(EnvError, match=r"did you mean 'connect_four'"):
        make_env("pgx:conect_four")


def test_the_picture_is_that_of_pgx():
    pytest.importorskip("resvg_py")
    env = make_env(GAME)
    state, _ = env.reset(jax.random.key(0), env.default_params)
    before = env.render(jax.tree.map(np.asarray, state), env.default_params)
    state, *_ = env.step(jax.random.key(0), state, jnp.argmax(state.game.legal_action_mask), env.default_params)
    after = env.render(jax.tree.map(np.asarray, state), env.default_params)
    assert before.shape == after.shape == (240, 240, 3)
    assert (before != after).any()


def test_all_games_of_two_players_are_listed():
    of_two = {name for name in library.available_envs() if name != "sparrow_mahjong" and not name.startswith(("2048", "minatar"))}
    assert {*names()} == of_two
