"""JaxMARL: its transitions, limits, masks, world state and pictures. Where it is not installed, these tests are skipped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect.jax_vector import check_env
from proximo.envs import make_env
from proximo.envs.agent_inputs import with_agent_inputs
from proximo.envs.jax.jaxmarl import names
from proximo.errors import ConfigError, EnvError

library = pytest.importorskip("jaxmarl")
SMAX = {"scenario": "3m"}


def own_of(name, settings):
    given = {**settings, "scenario": library.environments.smax.map_name_to_scenario("3m")} if "scenario" in settings else settings
    return library.make(name, **given)


@pytest.mark.parametrize(
    ("name", "settings"), [("MPE_simple_spread_v3", {}), ("HeuristicEnemySMAX", SMAX), ("overcooked_v2", {})]
)
def test_steps_and_ends_are_those_of_jaxmarl(name, settings):
    """With random legal actions, to the end of the second episode. MPE ends at its limit, SMAX with a defeat."""
    env, own = make_env(f"jaxmarl:{name}", settings), own_of(name, settings)
    step, own_step, rng = jax.jit(env.step), jax.jit(own.step_env), np.random.default_rng(0)
    key = jax.random.key(3)
    state, seen = env.reset(key, ())
    own_seen, own_state = own.reset(jax.random.key_data(key))
    for t in range(500):
        masks = seen["action_mask"] if isinstance(seen, dict) else np.ones((env.num_agents, env.action_space.n))
        action = jnp.array([rng.choice(np.flatnonzero(mask)) for mask in np.asarray(masks)])
        key = jax.random.fold_in(key, t)
        state, seen, reward, terminated, truncated, info = step(key, state, action, ())
        actions = dict(zip(own.agents, action, strict=True))
        own_seen, own_state, rewards, done, _ = own_step(jax.random.key_data(key), own_state, actions)
        observed = seen["observation"] if isinstance(seen, dict) else seen
        np.testing.assert_array_equal(observed, np.stack([own_seen[name] for name in own.agents]))
        np.testing.assert_array_equal(reward, np.stack([rewards[name] for name in own.agents]))
        assert (terminated | truncated).tolist() == [bool(done[name] | done["__all__"]) for name in own.agents]
        assert not (terminated & truncated).any()
        if done["__all__"]:
            break
    assert bool(done["__all__"])
    assert truncated.any() == (name != "HeuristicEnemySMAX")
    assert t + 1 == {"MPE_simple_spread_v3": 26, "overcooked_v2": 400}.get(name, t + 1)
    assert info.get("success", False) == bool(name == "HeuristicEnemySMAX" and reward.max() >= 1)


def test_a_limit_truncates_only_the_agents_that_live():
    env = make_env("jaxmarl:HeuristicEnemySMAX", {**SMAX, "max_steps": 4})
    state, _ = env.reset(jax.random.key(0), ())
    game = state[0].state
    game = game.replace(unit_alive=game.unit_alive.at[0].set(False), unit_health=game.unit_health.at[0].set(0.0))
    state = state[0].replace(state=game), state[1]
    for t in range(5):
        state, *_, terminated, truncated, _ = env.step(jax.random.key(t), state, jnp.full(3, 4), ())
        assert terminated.tolist() == [True, False, False]
        assert truncated.tolist() == [False, t == 4, t == 4]


def test_the_world_state_is_what_the_value_function_reads():
    env = make_env("jaxmarl:HeuristicEnemySMAX", SMAX)
    wrapped = with_agent_inputs(env, "SMAX", agent_id=True, needs_state=True)
    _, seen = wrapped.reset(jax.random.key(0), ())
    own_seen, _ = own_of("HeuristicEnemySMAX", SMAX).reset(jax.random.key_data(jax.random.key(0)))
    np.testing.assert_array_equal(seen["state"], np.tile(own_seen["world_state"], (3, 1)))
    np.testing.assert_array_equal(seen["agent_id"], np.eye(3))
    assert dict(wrapped.observation_space.spaces)["state"].shape == seen["state"].shape[1:]


@pytest.mark.parametrize("name", ["MPE_simple_spread_v3", "SMAX"])
def test_a_picture_shows_every_body(name):
    env = make_env(f"jaxmarl:{name}")
    picture = env.render(env.reset(jax.random.key(0), ())[0], ())
    assert picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3


def test_what_does_not_exist_is_named():
    with pytest.raises(EnvError, match=r"jaxmarl has no environment 'MPE_simple_tag_v3'"):
        make_env("jaxmarl:MPE_simple_tag_v3")
    with pytest.raises(ConfigError, match=r"scenario = 3mm: expected one of 3m, 2s3z"):
        make_env("jaxmarl:SMAX", {"scenario": "3mm"})
    for name in ("SMAX", "MPE_simple_spread_v3"):
        with pytest.raises(ConfigError, match=r"has no parameter 'max_step' \(did you mean 'max_steps'\?\)"):
            make_env(f"jaxmarl:{name}", {"max_step": 3})
    with pytest.raises(
        EnvError, match=r"agents of jaxmarl:SMAX have different spaces, such as Discrete\(11\) and Discrete\(10\)"
    ):
        make_env("jaxmarl:SMAX", {"scenario": "5m_vs_6m"})
    with pytest.raises(ConfigError, match=r"action_type = continuous has no masks"):
        make_env("jaxmarl:SMAX", {"action_type": "continuous"})


@pytest.mark.parametrize(("name", "settings"), [*((name, {}) for name in names()), ("MPE_simple_spread_v3", {"num_agents": 1})])
def test_spaces_are_those_of_the_observations(name, settings):
    env = make_env(f"jaxmarl:{name}", settings)
    check_env(env, name)
    assert (env.num_agents == 1) == (settings != {})
