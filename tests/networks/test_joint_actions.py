"""Actions of several parts: the distribution, and everything that acts with them."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proximo
from proximo.checks.jax_transforms import check_side_effects, check_transforms
from proximo.distributions import Categorical, Gaussian, Joint
from proximo.distributions.joint import Sample
from proximo.envs.custom import from_object
from proximo.envs.gymnasium.transition_checks import check_actions
from proximo.errors import ConfigError, EnvError
from proximo.export import export
from proximo.export.runtime import ExportedPolicy
from proximo.rendering.play import make_player, play, policy_agent, random_agent
from proximo.spaces import Box, allows, flatdim, from_any, nested

import gym_toys
from helpers import small_policy

SAMPLES = (Sample((), "int32"), Sample((1,), "float32"), Sample((1,), "float32"))
RELEVANCE = ((1.0, 1.0, 0.0), (1.0, 0.0, 1.0), (1.0, 0.0, 0.0))


def parts(logits=(0.3, -0.2, 0.5), means=(0.4, -1.0), count=1):
    gaussians = [Gaussian(jnp.full((count, 1), mean), jnp.array([0.2 * i - 0.3])) for i, mean in enumerate(means)]
    return Categorical(jnp.tile(jnp.array([logits]), (count, 1))), *gaussians


def joint(relevance=RELEVANCE, **changes):
    return Joint(parts(**changes), None if relevance is None else jnp.array(relevance), SAMPLES, 0)


@pytest.mark.parametrize("choice", [0, 1, 2])
def test_log_prob_counts_what_the_choice_uses(choice):
    action, each = jnp.array([[choice, 0.1, 0.7]]), parts()
    logs = [each[0].log_prob(jnp.array([choice])), each[1].log_prob(jnp.array([[0.1]])), each[2].log_prob(jnp.array([[0.7]]))]
    assert float(joint(None).log_prob(action)[0]) == pytest.approx(float(sum(logs)[0]), rel=1e-5)
    used = sum(log for log, relevant in zip(logs, RELEVANCE[choice], strict=True) if relevant)
    assert float(joint().log_prob(action)[0]) == pytest.approx(float(used[0]), rel=1e-5)
    # No gradient reaches the mean of a number that is not used.
    gradient = jax.grad(lambda means: joint(means=means).log_prob(action).sum())((0.4, -1.0))
    assert [bool(g != 0) for g in gradient] == [bool(r) for r in RELEVANCE[choice][1:]]


def test_entropy_is_the_expectation_of_minus_log_prob():
    for relevance in (None, RELEVANCE):
        keys = jax.random.split(jax.random.key(0), 3)
        noise = jax.random.gumbel(keys[0], (200_000, 3)), *(jax.random.normal(key, (200_000, 1)) for key in keys[1:])
        drawn = joint(relevance, count=200_000)
        mean = float(-drawn.log_prob(drawn.sample(noise)).mean())
        assert float(joint(relevance).entropy()[0]) == pytest.approx(mean, abs=0.01)
    assert float(joint(None).entropy()[0]) > float(joint().entropy()[0]) + 0.1


class Steer(gym.Env):
    """Move by an amount, turn by another, or wait, as the observation asks for. With ``masked``, waiting is often forbidden."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gym.spaces.Dict(
        kind=gym.spaces.Discrete(3), amounts=gym.spaces.Tuple([gym.spaces.Box(-1.0, 1.0, (1,), np.float32)] * 2)
    )

    def __init__(self, masked=False, render_mode=None):
        self.masked, self.render_mode, self.metadata = masked, render_mode, {"render_modes": ["rgb_array"], "render_fps": 5}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.length = 0, int(8 + self.np_random.integers(8))
        return self.ask(), self.info()

    def info(self):
        return {"action_mask": np.array([1, 1, self.kind == 2], np.int8)} if self.masked else {}

    def ask(self):
        self.kind, self.amount = int(self.np_random.integers(3)), self.np_random.uniform(-1, 1)
        return np.array([*np.eye(3)[self.kind], self.amount], np.float32)

    def step(self, action):
        assert Steer.action_space.contains(action), action
        kind, amounts = int(action["kind"]), action["amounts"]
        assert not self.masked or kind != 2 or self.kind == 2
        used = self.amount if kind == 2 else float(amounts[kind][0])
        reward = float(kind == self.kind) * (1.0 - abs(used - self.amount))
        self.time += 1
        return self.ask(), reward, False, self.time == self.length, self.info()

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)


SMALL = {"preset": False, "num_envs": 4, "num_steps": 16, "hidden_sizes": (8,)}


@pytest.mark.parametrize("settings", [{}, {"num_workers": 2, "memory": "gru", "memory_size": 8, "observe_action": True}])
def test_everything_acts_with_several_parts(tmp_path, settings):
    agent = proximo.PPO(Steer, action_relevance=("10", "01", "00"), env_settings={"masked": True}, seed=1, **SMALL, **settings)
    assert agent.learn(256).evaluate(4).length.min() >= 8
    observation = {"observation": np.eye(4, dtype=np.float32), "action_mask": np.ones((4, 3), np.int8)}
    starts = np.ones(4, bool)
    actions, _ = agent.policy.predict(observation, agent.policy.init_memory(4), starts)
    assert actions["kind"].shape == (4,)
    assert [part.shape for part in actions["amounts"]] == [(4, 1)] * 2
    single, _ = agent.policy.predict({k: x[0] for k, x in observation.items()}, agent.policy.init_memory(), True)
    assert Steer.action_space.contains(single)
    export(agent.policy, tmp_path / "export")
    exported = ExportedPolicy(tmp_path / "export" / "policy.onnx")
    found, _ = exported.predict(observation, exported.init_memory(4), starts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, actions)
    for played in (policy_agent(agent.policy), random_agent(agent.policy.env, 0)):
        *_, last = play(make_player(agent.policy.env, agent.policy.config, 3, 0), played, 1, 100)
        assert last.ended == "truncated"


SPACE = from_any(
    gym.spaces.Dict(
        move=gym.spaces.Tuple([gym.spaces.Discrete(3, start=1), gym.spaces.Box(np.float32([0, -5]), np.float32([1, 9]))]),
        arm=gym.spaces.Discrete(3),
        arms=gym.spaces.MultiDiscrete([2, 4], start=[5, -1]),
        lamps=gym.spaces.MultiBinary((2, 2)),
        level=gym.spaces.Box(-1.0, 1.0, (), np.float32),
    ),
    "action",
)


@pytest.mark.parametrize("settings", [{}, {"distribution": "beta"}, {"state_dependent_std": True}])
def test_policies_act_with_every_kind_of_part(settings):
    actor = small_policy(Box((2,)), action_space=SPACE, **settings).actor
    numbers = 3.0 * jax.random.normal(jax.random.key(1), (100, sum(actor.counts)))
    # Two equal Discrete parts have masks of their own.
    mask = np.ones((100, 3 + 6 + 8 + 3), bool)
    mask[:, [0, 1]], mask[:, [-1, -2]] = False, False
    distribution = actor.distribution(numbers, jnp.array(mask))
    sample = distribution.sample(actor.noise(jax.random.key(2), (100,)))
    taken = np.asarray(actor.to_space(sample))
    given = nested(SPACE, taken)
    for i in range(100):
        assert allows(SPACE, mask[i], jax.tree.map(lambda x, i=i: x[i], given))
    assert set(given["arm"].tolist()) == {2}
    assert set(given["move"][0].tolist()) == {1}
    assert (given["arms"].min(), given["arms"].max()) == (-1, 6)
    assert (given["move"][1] >= np.float32([0, -5])).all()
    assert (given["move"][1] <= np.float32([1, 9])).all()
    check_actions(taken, SPACE, "parts", 0)
    inside = np.asarray(actor.from_space(jnp.array(taken)))
    np.testing.assert_allclose(np.asarray(actor.to_space(jnp.array(inside))), taken, atol=1e-4)
    assert np.isfinite(np.asarray(distribution.log_prob(jnp.array(inside)))).all()
    assert actor.features(sample).shape == (100, flatdim(SPACE))
    wrong = taken.copy()
    wrong[3, 0] = 7
    with pytest.raises(EnvError, match="environment 3"):
        check_actions(wrong, SPACE, "parts", 0)


class Both:
    """A JAX environment of ``num_agents``. The reward of an agent is its amount, if it chooses 1."""

    observation_space = Box((1,))
    action_space = gym.spaces.Dict(amount=gym.spaces.Box(-1.0, 1.0, (1,), np.float32), choice=gym.spaces.Discrete(2))
    default_params = ()

    def __init__(self, num_agents=1):
        self.num_agents = num_agents
        self.lead = (num_agents,) if num_agents > 1 else ()

    def reset(self, key, params):
        return (jnp.int32(0), jax.random.randint(key, (), 3, 9)), jnp.ones((*self.lead, 1))

    def step(self, key, state, action, params):
        assert action["choice"].dtype == jnp.int32
        reward = jnp.where(action["choice"] == 1, action["amount"][..., 0], 0.0)
        time = state[0] + 1
        over = jnp.broadcast_to(time >= state[1], self.lead)
        return (time, state[1]), jnp.ones((*self.lead, 1)), reward, over, jnp.zeros_like(over), {}

    def render(self, state, params):
        return np.zeros((8, 8, 3), np.uint8)


@pytest.mark.parametrize("count", [1, 3])
def test_jax_environments_take_several_parts(count):
    agent = proximo.PPO(Both(count), preset=False, num_envs=8, num_steps=16, hidden_sizes=(8,), learning_rate=0.01, seed=1)
    check_side_effects(agent.env, "both")
    check_transforms(agent.env, "both")
    agent.learn(128 * 60)
    action, _ = agent.predict(np.ones((count, 1), np.float32))
    assert action["choice"].tolist() == [1] * count
    assert (action["amount"] > 0.8).all()
    *_, last = play(make_player(agent.env, agent.config, 3, 0), policy_agent(agent.policy), 1, 100)
    assert last.episode_return > 0.8 * count * last.step


def test_settings_of_one_part_are_refused():
    with pytest.raises(EnvError, match=r"sde_every = 4 is for actions of one part"):
        small_policy(Box((2,)), action_space=SPACE, sde_every=4)
    with pytest.raises(EnvError, match=r"A custom distribution is for actions of one part"):
        proximo.PPO(Steer, distribution=object(), **SMALL)
    boxes = from_any(gym.spaces.Dict(a=gym.spaces.Box(0, 1), b=gym.spaces.Box(0, 1)), "action")
    with pytest.raises(EnvError, match=r"none of their parts is Discrete: leave it out"):
        small_policy(Box((2,)), action_space=boxes, action_relevance=("11",))


def test_several_boxes_have_the_defaults_of_continuous_control():
    class Arms(Steer):
        action_space = gym.spaces.Dict(left=gym.spaces.Box(-1, 1), right=gym.spaces.Box(-1, 1))

        def step(self, action):
            return super().step({"kind": np.int64(2), "amounts": tuple(action.values())})

    assert proximo.PPO(Arms).config.ppo.objective == "spo"
    assert proximo.PPO(Steer).config.ppo.objective == "clip"


def test_a_repeated_action_stops_where_the_mask_forbids_it():
    agent = proximo.PPO(Steer, env_settings={"masked": True}, action_repeat=3, num_workers=0, seed=1, **SMALL)
    assert agent.learn(256).step == 256  # Steer asserts that each action is legal


def test_demonstrations_of_several_parts_are_cloned():
    agent = proximo.PPO(Steer, seed=1, **SMALL)
    rng = np.random.default_rng(0)
    kinds, amounts = rng.integers(0, 3, 400), rng.uniform(-1, 1, 400).astype(np.float32)
    observations = np.concatenate([np.eye(3, dtype=np.float32)[kinds], amounts[:, None]], axis=1)
    actions = {"kind": kinds, "amounts": (amounts[:, None], amounts[:, None])}
    losses = proximo.pretrain(agent, observations, actions, num_epochs=80)
    assert losses[-1] < losses[0] - 1.0
    # Demonstrations that agree must not take the noise, with which PPO explores.
    stds = [np.asarray(head.log_std) for head in agent.policy.actor_critic.actor.heads if hasattr(head, "log_std")]
    assert len(stds) == 2
    assert all((x == stds[0]).all() for x in stds)
    assert np.mean(agent.predict(observations)[0]["kind"] == kinds) > 0.9
    with pytest.raises(ConfigError, match="outside of the bounds"):
        proximo.pretrain(agent, observations, {**actions, "amounts": (amounts[:, None] + 3, amounts[:, None])})


def test_relevance_that_does_not_fit_is_one_sentence():
    for rows, expected in (
        (("10", "01"), "3 rows of 2 digits"),
        (("1", "0", "1"), "3 rows of 2 digits"),
        (("12", "01", "00"), "3 rows"),
    ):
        with pytest.raises(EnvError, match=rf"action_relevance = .*expected {expected}"):
            proximo.PPO(Steer, action_relevance=rows, **SMALL)
    with pytest.raises((EnvError, ConfigError), match="action_relevance"):
        proximo.PPO(gym_toys.Walk, action_relevance=("1",), **SMALL)


def test_a_vector_environment_gets_batches_of_parts():
    make = lambda num_envs: gym.vector.SyncVectorEnv([Steer] * num_envs, autoreset_mode="SameStep")  # noqa: E731
    agent = proximo.PPO(make, **SMALL).learn(128)
    for played in (policy_agent(agent.policy), random_agent(agent.env, 0)):
        *_, last = play(make_player(agent.env, agent.config, 3, 0), played, 1, 100)
        assert last.ended == "truncated"
    assert from_object(make, {})[1].action_space == from_object(Steer, {})[1].action_space
    assert small_policy(
        from_object(Steer, {})[1].observation_space, action_space=from_object(Steer, {})[1].action_space
    ).actor.counts == (1, 1, 3)
