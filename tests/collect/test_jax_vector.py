"""An environment is held against the protocol before anything is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from broken_envs import after_reset, after_step
from proximo.checks import check_environment, quick_check
from proximo.collect import JaxTrainer, jax_collector, jax_vector
from proximo.envs.custom import from_object
from proximo.errors import EnvError
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import toys
from helpers import difference, drawn_policy, small_collector, small_config
from toys import Counting


def variant(**parts):
    """``Counting`` with one mistake."""
    env = Counting()
    vars(env).update(parts)
    return env


class Keyed(Counting):
    """``Counting`` that draws its observations from a key in its state."""

    def reset(self, key, params):
        state, observation = super().reset(key, params)
        return (state, key), observation

    def step(self, key, state, action, params):
        counted, _, *rest = super().step(key, state[0], action, params)
        kept, drawing = jax.random.split(state[1])
        return (counted, kept), jax.random.uniform(drawing, (2,)), *rest


OtherKey = after_step(Keyed, lambda self, state, *rest: ((state[0], jax.random.key(0, impl="rbg")), *rest))
"""A step returns a key of another implementation."""


def part_of(name, change):
    """A reset whose observation has one part that is not as its space says."""
    wrong = after_reset(toys.AnySpaces, lambda self, state, x: (state, {**x, name: change(x[name])}))
    return wrong(toys.masked(toys.PARTS, 3), Discrete(3))


def stepping(change):
    """A step whose result is changed."""
    return after_step(Counting, lambda self, *result: change(result))()


INTEGERS = {"reset": lambda key, params: (Counting().reset(key, params)[0], jnp.zeros(2, jnp.int32))}
MISTAKES = [
    (variant(observation_space=Box((3,))), r"reset returns an observation float32\[2\]: its observation space is Box\(3,\)"),
    (variant(observation_space=Box((2,), 0, 255, "uint8")), r"float32\[2\]: its observation space is Box\(2,\) uint8"),
    (variant(observation_space=Discrete(4)), r"observation float32\[2\]: its observation space is Discrete\(4\)"),
    (variant(**INTEGERS), r"step returns an observation float32\[2\], where reset returns int32\[2\]: use one type"),
    (stepping(lambda r: (r[0], r[1][None], *r[2:])), r"step returns an observation float32\[1, 2\]: its"),
    (stepping(lambda r: r[:5]), r"returns 5 values: expected \(state, observation, reward,"),
    (stepping(lambda r: (*r[:5], None)), r"returns None as info: expected a dict"),
    (stepping(lambda r: (*r[:5], {"success": jnp.zeros(2, bool)})), r"success in info of type bool\[2\]: expected a single n"),
    (stepping(lambda r: (*r[:2], None, *r[3:])), r"reward of type NoneType: expected a single float32"),
    (stepping(lambda r: (*r[:2], r[2][None], *r[3:])), r"reward of type float32\[1\]"),
    (stepping(lambda r: (*r[:2], r[2] + 1j, *r[3:])), r"reward of type complex64\[\]"),
    (stepping(lambda r: (*r[:3], 0.5 * r[2], *r[4:])), r"terminated of type float32\[\]: expected a single bool"),
    (stepping(lambda r: (*r[:4], r[3][None], r[5])), r"truncated of type bool\[1\]"),
    (stepping(lambda r: r[9]), r"step raised IndexError: tuple index out of range \(test_jax_vector.py, line \d+\)"),
    (stepping(lambda r: (r[0][0], *r[1:])), r"state of another structure"),
    (stepping(lambda r: ((r[0][0] + 0.5, r[0][1]), *r[1:])), r"whose leaf \[0\] is float32\[\], where reset returns int32"),
    (stepping(lambda r: ((jnp.stack([r[0][0]] * 2), r[0][1]), *r[1:])), r"a state whose leaf \[0\] is int32\[2\]"),
    (part_of("level", lambda x: x[None]), r"reset returns an observation \{.*'level': 'int32\[1\]'"),
    (part_of("body", list), r"reset returns an observation .*'body': \['float32\[3\]', 'int32\[3\]', 'bool\[2, 2\]'\]"),
    (part_of("camera", lambda x: x / 255.0), r"'camera': 'float32\[.*: its observation space is Dict\("),
    (part_of("action_mask", lambda x: 1.0 * x), r"'action_mask': 'float32\["),
    (
        part_of("body", lambda x: (x[0].astype(jnp.int32), *x[1:])),
        r"an observation whose leaf \['body'\]\[0\] is float32\[3\], where reset returns int32\[3\]: use one type",
    ),
    (OtherKey(), r"leaf \[1\] is key<rbg>\[\], where reset returns key<fry>\[\]: use one type"),
]


@pytest.mark.parametrize(("env", "sentence"), MISTAKES)
def test_a_mistake_in_an_environment_is_named_with_its_place(env, sentence):
    with pytest.raises(EnvError, match=sentence):
        jax_vector.check_env(env, "mine")


# A camera takes seconds to compile: test_gymnasium_collector.py trains with one among the parts.
PLAIN_PARTS = Dict(tuple((name, part) for name, part in toys.PARTS.spaces if name != "camera"))


@pytest.mark.parametrize(("action_space", "entries"), [(Discrete(3, 2), 3), (Box((2,), -1.0, 1.0), 0)])
def test_dict_observations_train_with_and_without_a_mask(action_space, entries):
    env = toys.AnySpaces(toys.masked(PLAIN_PARTS, entries) if entries else PLAIN_PARTS, action_space)
    collector = small_collector(env, num_envs=2, clip_observation=5.0)
    state, metrics = jax.jit(JaxTrainer(collector).advance, static_argnums=2)(collector.init(jax.random.key(0)), jnp.int32(3), 3)
    assert bool(state.healthy)
    assert np.isfinite(metrics["train/loss"]).all()
    assert metrics["train/ratio_max"][0] > 1.0
    statistics = state.learner.policy.normalizer["body"][0]
    assert statistics.count.tolist() == [3 * 16, 0]
    assert jnp.all(jnp.abs(statistics.mean - 3.0) < 1.5)


@pytest.mark.parametrize(
    "space", [Discrete(3, 2), MultiDiscrete((3, 1, 2), (0, 4, -1), (1, 3)), MultiBinary((2, 2)), Box((2,), -1.0, 1.0)]
)
def test_example_action_matches_the_shape_and_type_of_policy_actions(space):
    env, one = toys.AnySpaces(Box((3,)), space), jnp.ones(1, bool)
    policy = drawn_policy(env, small_config())
    _, action, *_ = policy.act(policy.init_memory(1), jnp.ones((1, 3)), one, one, policy.actor.noise(jax.random.key(0), (1,)))
    action, tried = policy.to_space(action)[0], jax_vector._example_action(env)
    assert (action.shape, action.dtype) == (tried.shape, tried.dtype)


def test_an_environment_that_mixes_python_numbers_and_arrays_is_accepted():
    collector = small_collector(stepping(lambda r: (r[0], r[1], 1.0, False, False, {})))
    assert collector.init(jax.random.key(0)).healthy


class Slots:
    """``Counting`` without room for new attributes, and without ``default_params``."""

    __slots__ = ()
    observation_space, action_space = Counting.observation_space, Counting.action_space

    def reset(self, key, params):
        return Counting().reset(key, Counting.default_params)

    def step(self, key, state, action, params):
        return Counting().step(key, state, action, params)


def test_environment_with_slots_may_have_no_parameters():
    assert from_object(Slots(), {})[1].default_params == ()


def test_state_may_contain_a_random_key():
    collector = small_collector(Keyed())
    state, _ = jax.jit(JaxTrainer(collector).advance, static_argnums=2)(collector.init(jax.random.key(0)), jnp.int32(2), 2)
    assert bool(state.healthy)
    assert quick_check(Keyed(), "keyed")[1] is not None
    assert [f.message for f in check_environment(Keyed(), small_config()) if f.level == "error"] == []


@pytest.mark.parametrize(
    ("backend", "num_envs", "cheap", "always"),
    [("cpu", 2, True, False), ("gpu", 2, True, True), ("gpu", 2, False, False), ("gpu", 1, True, False)],
)
def test_branch_is_computed_if_needed_or_if_cheap_for_many(monkeypatch, backend, num_envs, cheap, always):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax_vector, "MANY_ENVS", 2)
    runs = []

    def compute():
        jax.debug.callback(lambda: runs.append(1))
        return jnp.ones(num_envs)

    where = jax.jit(lambda condition: jax_vector.where_any(condition, compute, jnp.zeros(num_envs), False, cheap))
    assert where(jnp.zeros(num_envs, bool)).tolist() == [0.0] * num_envs
    jax.effects_barrier()
    assert bool(runs) == always
    assert where(jnp.arange(num_envs) == 0).tolist() == [1.0, 0.0][:num_envs]
    jax.effects_barrier()
    assert runs


def test_rollouts_are_the_same_on_an_accelerator(monkeypatch):
    """There they have no branches, and several steps in one turn of the loop."""
    collector = small_collector(num_steps=24, max_episode_steps=5)
    state = collector.init(jax.random.key(0))

    def collected():
        after, rollout, _ = jax.jit(lambda: collector.collect(state.learner.policy, state.collector))()
        return jax.tree.map(lambda x: np.asarray(x, np.float32), (after.observation, rollout)), rollout

    with_branches, rollout = collected()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax_vector, "MANY_ENVS", 1)
    without, _ = collected()
    assert rollout.terminated.any()
    assert jax_collector.UNROLL > 1
    assert (rollout.bootstrap_value[rollout.truncated] != 0).any()
    assert difference(with_branches, without) < 1e-5


class Succeeds(toys.RandomEnds):
    """Reports its action as the success: 0, 1 or NaN."""

    def step(self, key, state, action, params):
        return *super().step(key, state, action, params)[:5], {"success": action}


Silent = after_step(toys.RandomEnds, lambda self, *result: (*result[:5], {"success": None}))


def test_nan_is_no_success():
    env, params = Succeeds(), toys.RandomEnds.default_params
    states, observations = jax_vector.reset(env, jax.random.split(jax.random.key(0), 3), params)
    reported = jnp.array([0.0, 1.0, jnp.nan])
    for actions in (reported, jnp.nan_to_num(reported).astype(int), jnp.nan_to_num(reported).astype(bool)):
        *_, success = jax_vector.step(env, jax.random.split(jax.random.key(1), 3), states, actions, observations, params)
        assert success.tolist() == [False, True, False]


def test_none_is_a_success_that_is_not_reported():
    assert "success" in jax_vector.info_shapes(Succeeds())
    assert jax_vector.info_shapes(Silent()).get("success") is None
    collector = small_collector(Silent())
    metrics = jax.eval_shape(lambda: JaxTrainer(collector).update(collector.init(jax.random.key(0)))[1])
    assert "rollout/success_rate" not in metrics
