"""``jaxmarl:MPE_simple_spread_v3``: JaxMARL, with time limits as truncations."""

import builtins
import contextlib
import inspect
import sys
from types import ModuleType
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from proximo.envs.libraries import NO_LIMIT, Described, check_names, load
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import ConfigError, EnvError
from proximo.spaces import ACTION_MASK, OBSERVATION, Dict, Discrete, MultiBinary, Space, from_any

TEAM_COLORS = ("tab:blue", "tab:green")


def names() -> list[str]:
    """Return environments whose agents have equal spaces."""
    return ["MPE_simple_spread_v3", "MPE_simple_reference_v3", "SMAX", "HeuristicEnemySMAX", "overcooked_v2"]


def from_name(name: str, settings: dict[str, Any]) -> JaxEnvironment:
    """Make an environment; ``settings`` are arguments of its class. ``scenario`` of SMAX is a name such as ``3m``."""
    env_id = f"jaxmarl:{name}"
    library = _loaded(env_id)
    check_names(settings, _parameters(library.make(name)), env_id)  # MPE ignores what it does not know
    if (scenario := settings.get("scenario")) is not None:
        known = load(env_id, ".environments.smax.smax_env").MAP_NAME_TO_SCENARIO
        if scenario not in known:
            raise ConfigError(f"env_settings: scenario = {scenario}: expected one of {', '.join(known)}.")
        settings = {**settings, "scenario": known[scenario]}
    env = library.make(name, **settings)
    kind = SMAX if "SMAX" in name else MPE if name.startswith("MPE") else JaxMARLEnvironment
    return kind(env, env_id)


def _parameters(env: Any) -> list[str]:
    """The arguments of the class of ``env``, of the classes it extends, and of the one that it wraps."""
    classes = [*type(env).__mro__, *type(getattr(env, "_env", env)).__mro__]
    found = [inspect.signature(cls.__init__).parameters.values() for cls in classes if cls is not object]
    named = (x.name for parameters in found for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD and x.name != "self")
    return list(dict.fromkeys(named))


def _loaded(env_id: str) -> ModuleType:
    """JaxMARL. Its import prints which environments are missing, and replaces both standard streams, which are restored."""
    streams = contextlib.redirect_stdout(sys.stdout), contextlib.redirect_stderr(sys.stderr)
    with streams[0], streams[1], mock.patch.object(builtins, "print"):
        return load(env_id)


class JaxMARLEnvironment(Described, JaxEnvironment):
    """An environment of JaxMARL. Every agent whose episode goes on is truncated at the limit, ``max_steps``."""

    def __init__(self, env: Any, env_id: str):
        self.env, self.limit, self.agents = env, env.max_steps, env.agents
        self.num_agents, self.default_params = len(env.agents), ()
        self.observation_space: Space = _common(
            [from_any(env.observation_space(name), "observation") for name in env.agents], env_id
        )
        self.action_space = _common([from_any(env.action_space(name), "action") for name in env.agents], env_id)

    def reset(self, key, params):
        seen, state = self.env.reset(jax.random.key_data(key))
        return (state, jnp.int32(0)), self._of_agents(self._seen(seen, state))

    def step(self, key, state, action, params):
        action = action if self.num_agents > 1 else action[None]
        actions = {name: action[i] for i, name in enumerate(self.agents)}
        seen, new, rewards, done, _ = self.env.step_env(jax.random.key_data(key), state[0], actions)
        over, steps = jnp.stack([done[name] for name in self.agents]) | done["__all__"], state[1] + 1
        at_limit = steps >= self.limit
        terminated = self._terminated(over, at_limit)
        reward = jnp.stack([rewards[name] for name in self.agents])
        results = self._of_agents((self._seen(seen, new), reward, terminated, at_limit & ~terminated))
        return (new, steps), *results, self._info(new)

    def _of_agents(self, tree: Any) -> Any:
        return tree if self.num_agents > 1 else jax.tree.map(lambda x: x[0], tree)

    def _seen(self, seen: dict[str, Any], state: Any) -> Any:
        """The observations of all agents."""
        return jnp.stack([seen[name] for name in self.agents])

    def _terminated(self, over: jax.Array, at_limit: jax.Array) -> jax.Array:
        return over & ~at_limit

    def _info(self, state: Any) -> dict[str, Any]:
        return {}


class _Unlimited(JaxMARLEnvironment):
    """Without its own limit, it ends an episode only if the task has ended. Its limit counts the steps before the present one, so that
    an episode has one step more than ``max_steps``, here as in JaxMARL."""

    render_fps = 10

    def __init__(self, env: Any, env_id: str):
        super().__init__(env, env_id)
        inner = getattr(env, "_env", env)
        self.limit, inner.max_steps = self.limit + 1, NO_LIMIT

    def _terminated(self, over, at_limit):
        return over


class MPE(_Unlimited):
    """Particles in a plane."""

    def render(self, state: Any, params: Any) -> np.ndarray:
        """Draw all bodies in their colors."""
        places = np.asarray(state[0].p_pos)
        colors = [tuple(float(x) / 255 for x in color) for color in self.env.colour]
        return _draw(places, np.asarray(self.env.rad), colors, (-2, 2), (-2, 2))


class SMAX(_Unlimited):
    """Battles of two teams, with masks of legal actions. Against scripted enemies, a victory is a success."""

    def __init__(self, env: Any, env_id: str):
        super().__init__(env, env_id)
        if not isinstance(self.action_space, Discrete):
            raise ConfigError(f"env_settings: action_type = {env.action_type} has no masks of legal actions: leave it out.")
        mask = MultiBinary((self.action_space.n,))
        self.observation_space = Dict({OBSERVATION: self.observation_space, ACTION_MASK: mask})

    def _mask(self, state: Any) -> jax.Array:
        legal = self.env.get_avail_actions(state)
        return jnp.stack([legal[name] for name in self.agents])

    def _seen(self, seen, state):
        return {OBSERVATION: super()._seen(seen, state), ACTION_MASK: self._mask(state)}

    def _info(self, state):
        if not hasattr(self.env, "enemy_agents"):
            return {}
        alive = _game(state).unit_alive
        return {"success": alive[: self.num_agents].any() & ~alive[self.num_agents :].any()}  # otherwise, it is a draw

    def world_state(self, state: Any, params: Any) -> jax.Array:
        """What JaxMARL gives the value function: features of all units."""
        return self.env.get_world_state(state[0])

    def render(self, state: Any, params: Any) -> np.ndarray:
        """Draw the living units; dark ones have their full health."""
        game, env = _game(state[0]), self.env
        health = np.asarray(game.unit_health / env.unit_type_health[game.unit_types])
        alive, teams = np.asarray(game.unit_alive), np.asarray(game.unit_teams, int)
        colors = [(TEAM_COLORS[team], 0.2 + 0.8 * share) for team, share in zip(teams[alive], health[alive], strict=True)]
        radii = np.asarray(env.unit_type_radiuses[game.unit_types])[alive]
        return _draw(np.asarray(game.unit_positions)[alive], radii, colors, (0, env.map_width), (0, env.map_height))


def _game(state: Any) -> Any:
    """The state of the game, without that of scripted enemies."""
    return getattr(state, "state", state)


def _common(spaces: list[Any], env_id: str) -> Any:
    if len(set(spaces)) > 1:
        raise EnvError(
            f"The agents of {env_id} have different spaces, such as {spaces[0]} and {spaces[-1]}, and cannot share a policy."
        )
    return spaces[0]


def _draw(places: np.ndarray, radii: np.ndarray, colors: list[Any], x_range: Any, y_range: Any) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here: importing it takes memory, also without pictures
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    figure = Figure(figsize=(4, 4), layout="constrained")
    axes = figure.add_subplot(xlim=x_range, ylim=y_range, xticks=(), yticks=(), aspect="equal")
    for place, radius, color in zip(places, radii, colors, strict=True):
        axes.add_patch(Circle(place, radius, color=color))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]
