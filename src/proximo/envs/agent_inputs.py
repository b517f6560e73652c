"""Entries that are added to the observations of several agents: ``agent_id`` and ``state``."""

from typing import Any

from proximo.custom_code import custom_code_errors
from proximo.envs.libraries import JaxWrapper, num_agents
from proximo.errors import ConfigError
from proximo.spaces import AGENT_ID, OBSERVATION, STATE, Box, Dict


def check_agent_id(agent_id: bool, count: int, env_id: str) -> None:
    """Raise ``ConfigError`` if ``agent_id`` is set for an environment of ``count`` = 1 agent."""
    if agent_id and count == 1:
        raise ConfigError(f"agent_id = true: {env_id} has one agent, so this would always be 1: leave out agent_id.")


class JaxAgentInputs(JaxWrapper):
    """A JAX environment of several agents whose observations have an entry ``agent_id``, an entry ``state``, or both. The state is
    what the environment's ``world_state`` returns or, without this method, the observations of all agents."""

    def __init__(self, env: Any, agent_id: bool, needs_state: bool):
        super().__init__(env)
        seen, count, self.entries = env.observation_space, num_agents(env), dict[str, Box]()
        if agent_id:
            self.entries[AGENT_ID] = Box((count,), 0.0, 1.0)
        if needs_state:
            self.entries[STATE] = Box(_state_shape(env))
        parts = dict(seen.spaces) if isinstance(seen, Dict) else {OBSERVATION: seen}
        self.observation_space = Dict({**parts, **self.entries})

    def observed(self, observation: Any, state: Any, params: Any) -> Any:
        import jax.numpy as jnp

        parts, count = dict(observation) if isinstance(observation, dict) else {OBSERVATION: observation}, num_agents(self)
        if AGENT_ID in self.entries:
            parts[AGENT_ID] = jnp.eye(count)
        if STATE in self.entries:
            known = _world_state(self.env, observation, state, params)
            parts[STATE] = jnp.broadcast_to(known, (count, *known.shape))
        return parts


def _world_state(env: Any, observation: Any, state: Any, params: Any) -> Any:
    import jax
    import jax.numpy as jnp

    if hasattr(env, "world_state"):
        return env.world_state(state, params).astype(jnp.float32)
    return jnp.concatenate([x.astype(jnp.float32).reshape(-1) for x in jax.tree.leaves(observation)])


def _state_shape(env: Any) -> tuple[int, ...]:
    import jax

    def state_of(key: Any) -> Any:
        state, observation = env.reset(key, env.default_params)
        return _world_state(env, observation, state, env.default_params)

    return jax.eval_shape(state_of, jax.random.key(0)).shape


def with_agent_inputs(env: Any, env_id: str, agent_id: bool, needs_state: bool) -> Any:
    """A JAX environment with these entries, if it lacks them. Gymnasium environments are wrapped one by one.

    Raises ``ConfigError`` for ``agent_id`` if the environment has one agent.
    """
    if hasattr(env, "make_vector"):
        return env
    check_agent_id(agent_id, num_agents(env), env_id)
    has_state = STATE in dict(getattr(env.observation_space, "spaces", ()))
    needs_state = needs_state and not has_state and num_agents(env) > 1
    with custom_code_errors(env_id):
        return JaxAgentInputs(env, agent_id, needs_state) if agent_id or needs_state else env
