"""Steps ``N`` JAX environments, also with a policy; gives one Gymnasium's interface; checks that one follows the protocol."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key, PyTree

from proximo.collect.program_cache import CompiledFunction, environment_key, reuse
from proximo.custom_code import custom_code_errors
from proximo.envs.custom import as_jax_environment
from proximo.envs.gymnasium.environment import GymnasiumEnvironment
from proximo.envs.libraries import num_agents
from proximo.envs.protocol import Environment, JaxEnvironment
from proximo.errors import EnvError
from proximo.networks import ActorCritic
from proximo.spaces import Box, Joint, LeafSpace, MultiBinary, Space, joined, nested, tree
from proximo.types import Memory, Observation, Previous, is_key, select

SEEDS_AXIS = "seeds"
MANY_ENVS = 1024
"""With this many environments, an episode ends in nearly every step."""


def vmaps_seeds() -> bool:
    """Whether the seeds of one program train side by side. On a CPU, a core trains one after the other
    (docs/decisions/0019-start-and-cores.md)."""
    return jax.default_backend() != "cpu"


def over_seeds(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``function`` of trees of one seed, for trees whose arrays have a leading axis of seeds."""
    if vmaps_seeds():
        return jax.vmap(function, axis_name=SEEDS_AXIS)
    return lambda *trees: jax.lax.map(lambda seed: function(*seed), trees)


def anywhere(condition: Bool[Array, "*rows"], seeds_axis: bool) -> Bool[Array, ""]:
    """Whether the condition holds in any environment; with ``seeds_axis``, of any seed. With one answer for
    all seeds ``lax.cond`` stays a branch under vmap."""
    answer = jnp.any(condition)
    return jax.lax.pmax(answer.astype(jnp.int32), SEEDS_AXIS).astype(bool) if seeds_axis else answer


def where_any(
    condition: Bool[Array, " N"], compute: Callable[[], PyTree], otherwise: PyTree, seeds_axis: bool, cheap: bool = True
) -> PyTree:
    """``compute()`` where ``condition`` holds, else ``otherwise``. It is computed only if some environment
    needs it. Resets and values of final observations are rare. With ``MANY_ENVS`` environments they are not,
    and the branch itself takes time on an accelerator (benchmarks/RESULTS.md): there, all that is ``cheap``
    is computed in every step."""
    if cheap and jax.default_backend() != "cpu" and condition.shape[0] >= MANY_ENVS:
        return select(condition, compute(), otherwise)
    return jax.lax.cond(anywhere(condition, seeds_axis), lambda: select(condition, compute(), otherwise), lambda: otherwise)


def as_template(tree: PyTree, template: PyTree) -> PyTree:
    """``tree`` with the types of ``template``: environments may mix Python numbers and arrays, a scan may not."""

    def cast(x: Any, like: Any) -> Any:
        return x if is_key(like) else jnp.asarray(x).astype(like.dtype).reshape(like.shape)

    return jax.tree.map(cast, tree, template)


def by_env(tree: PyTree, env: JaxEnvironment) -> PyTree:
    """Arrays of ``N`` columns as arrays of environments and agents, or of environments that have one agent."""
    count = num_agents(env)
    return tree if count == 1 else jax.tree.map(lambda x: x.reshape((-1, count, *x.shape[1:])), tree)


def by_column(tree: PyTree, env: JaxEnvironment) -> PyTree:
    """What ``by_env`` returns as arrays of ``N`` columns."""
    return tree if num_agents(env) == 1 else jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), tree)


def reset(env: JaxEnvironment, keys: Key[Array, " E"], params: PyTree) -> tuple[PyTree, PyTree]:
    """Begin ``E`` episodes. Returns states, and the observations of ``N`` columns."""
    states, observations = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
    states, observations = jax.tree.map(jnp.asarray, (states, observations))
    return states, by_column(observations, env)


def step(
    env: JaxEnvironment, keys: Key[Array, " E"], states: PyTree, actions: Array, observations: PyTree, params: PyTree
) -> tuple:
    """Step ``E`` environments with actions of ``N`` columns. Returns states; and of the columns observations, rewards,
    terminated, truncated and success (None: unreported), which may be one for all agents of an environment."""
    step_all = jax.vmap(env.step, in_axes=(0, 0, 0, None))
    new, *results, info = step_all(keys, states, nested(env.action_space, by_env(actions, env)), params)
    seen, reward, terminated, truncated = by_column(results, env)
    if (success := info.get("success")) is not None:
        success = success.astype(bool) & ~jnp.isnan(success)
        success = success.reshape(-1)
    terminated = terminated.astype(bool)
    truncated, reward = truncated.astype(bool) & ~terminated, reward.astype(jnp.float32)
    return as_template(new, states), as_template(seen, observations), reward, terminated, truncated, success


class JaxAsGymnasium:
    """A JAX environment with the interface of ``gymnasium.Env``, to step it from Python.

    ``reset(seed=i)`` begins episode ``i`` of an evaluation with ``key`` that plays ``together`` episodes at a time;
    without a seed, the next episode. Without a ``matmul_precision`` the programs compile faster and run slowly.
    """

    def __init__(self, env: JaxEnvironment, key: Key[Array, ""], together: int = 1, matmul_precision: str | None = None):
        self._key, self._together, self._number = key, together, -1
        self._params = jax.tree.map(jnp.asarray, env.default_params)
        self._action_type = np.float32 if isinstance(env.action_space, Box | Joint) else np.int32
        self._is_one_agent, self._space = num_agents(env) == 1, env.action_space

        def keys(key: Key[Array, ""], count: Any, index: Any) -> tuple[Key[Array, ""], Key[Array, "1"]]:
            """A key for all episodes that are played together, and the key of one among them."""
            for_all, for_each = jax.random.split(jax.random.fold_in(key, count))
            return for_all, jax.random.split(for_each, together)[index][None]

        def begin(key: Key[Array, ""], chunk: Any, index: Any, params: PyTree) -> PyTree:
            episode_key, own = keys(key, chunk, index)
            start = reset(env, own, params)
            return episode_key, as_template(start, start)  # the types of later steps

        def advance(episode_key: Key[Array, ""], time: Any, index: Any, *arguments: Any) -> PyTree:
            return step(env, keys(episode_key, time, index)[1], *arguments)

        def compiled(function: Callable[..., Any]) -> CompiledFunction:
            with_precision = jax.default_matmul_precision(matmul_precision or "default")
            return CompiledFunction(with_precision(function), brief=matmul_precision is None)

        programs = "stepped", environment_key(env), matmul_precision, together
        self._begin, self._advance = reuse(programs, lambda: (compiled(begin), compiled(advance)))

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self._number, self._time = self._number + 1 if seed is None else seed, 0
        chunk, self._index = map(np.int32, divmod(self._number, self._together))
        self._episode_key, (self.state, self._observation) = self._begin(0, self._key, chunk, self._index, self._params)
        """The state has a leading axis of 1."""
        return self._shown(self._observation), {}

    def action_key(self) -> Key[Array, ""]:
        """The key that samples the next action."""
        return jax.random.split(jax.random.fold_in(self._episode_key, self._time))[0]

    def step(self, action: Any) -> tuple[Any, ...]:
        if self._is_one_agent:
            action = jax.tree.map(lambda x: np.asarray(x)[None], action)
        if isinstance(self._space, Joint):
            action = joined(part.of(action) for part in self._space.parts)
        action = np.asarray(action, self._action_type)
        now = (self._episode_key, np.int32(self._time), self._index)
        result = self._advance(0, *now, self.state, action, self._observation, self._params)
        self._time += 1
        self.state, self._observation, *_, success = result
        return *self._shown(result[1:-1]), {} if success is None else {"success": self._shown(success)}

    def _shown(self, columns: PyTree) -> PyTree:
        """What the environment returned, with an axis of agents if there are several."""
        columns = jax.device_get(columns)
        return jax.tree.map(lambda x: x[0], columns) if self._is_one_agent else columns

    def close(self) -> None:
        """There is nothing to end."""


class StepState(NamedTuple):
    """What the environments (E ...) and the policy (N ...) pass on from step to step: the observation as the
    environments returned it, and the previous action and reward, if the policy observes them."""

    env_state: PyTree
    observation: Observation
    memory: Memory
    previous: Previous | None


def policy_step(
    env: JaxEnvironment,
    policy: ActorCritic,
    before: StepState,
    episode_start: Bool[Array, " N"],
    valid: Bool[Array, " N"],
    noise: PyTree | None,
    keys: Key[Array, " E"],
    params: PyTree,
) -> tuple[StepState, dict[str, Any], Bool[Array, " successes"] | None]:
    """Act, step, remember; in trainings and evaluations. Without ``noise``, from ``policy.actor.noise``, the
    actions are the most probable ones. Where ``valid`` is false, the memory stays as it was. Returns what is
    passed on, the step as fields of ``Rollout``, and which columns, or which environments, report a success (None
    if they never do). Environments whose episode ended are not reset."""
    observed = policy.with_previous_step(before.observation, episode_start, before.previous)
    acted = policy.act(before.memory, observed, episode_start, valid, noise)
    env_state, observation, reward, terminated, truncated, success = step(
        env, keys, before.env_state, policy.to_space(acted.action), before.observation, params
    )
    after = StepState(env_state, observation, acted.memory, policy.previous_step(acted.action, reward))
    fields = {"observation": observed, "action": acted.action, "log_prob": acted.log_prob, "value": acted.value}
    return after, {**fields, "reward": reward, "terminated": terminated, "truncated": truncated}, success


def info_shapes(env: JaxEnvironment) -> dict[str, Any]:
    """Shapes and types of the ``info`` of a step."""
    key = jax.eval_shape(jax.random.key, 0)
    state, _ = jax.eval_shape(env.reset, key, env.default_params)
    return jax.eval_shape(env.step, key, state, _example_action(env), env.default_params)[-1]


def _example_action(env: JaxEnvironment) -> PyTree[jax.ShapeDtypeStruct]:
    def of(space: LeafSpace) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*_agents_axis(env), *space.shape), jnp.float32 if isinstance(space, Box) else jnp.int32)

    return tree(of, env.action_space.space if isinstance(env.action_space, Joint) else env.action_space)


def _agents_axis(env: JaxEnvironment) -> tuple[int, ...]:
    """The leading axis of what agents do and receive; none if there is one agent."""
    return () if num_agents(env) == 1 else (num_agents(env),)


def check_env(given: Environment, env_id: str) -> JaxEnvironment:
    """Check that ``given`` follows the protocol of JAX environments, and return it, with spaces of proximo.
    Reset and step are traced, and shapes and types are compared with the spaces. Raises ``EnvError`` if the
    protocol is broken, or ``given`` is a Gymnasium environment or a name."""
    if isinstance(given, str) or inspect.isclass(given):
        raise EnvError(f"env = {given!r}: expected an environment: call a class, and pass a name to proximo.make_env.")
    if isinstance(given, GymnasiumEnvironment):
        raise EnvError(
            f"{env_id} is a Gymnasium environment: expected a JAX environment (`proximo envs` lists them). "
            "proximo.PPO and proximo.train take either kind."
        )
    env: JaxEnvironment = as_jax_environment(given, env_id)
    key, params, step = jax.eval_shape(jax.random.key, 0), env.default_params, f"{env_id}.step returns"
    state, observation = _traced(f"{env_id}.reset", env.reset, ("state", "observation"), key, params)
    axis = _agents_axis(env)
    _check_observation(observation, env.observation_space, axis, f"{env_id}.reset returns")
    names = ("state", "observation", "reward", "terminated", "truncated", "info")
    stepped = _traced(f"{env_id}.step", env.step, names, key, state, _example_action(env), params)
    new, seen, reward, terminated, truncated, info = stepped
    _check_observation(seen, env.observation_space, axis, step)
    if not isinstance(info, Mapping):
        raise EnvError(f"{step} {info!r} as info: expected a dict.")
    success = np.False_ if info.get("success") is None else info["success"]
    for name, value, number, expected in (
        ("reward", reward, np.float64, "float32"),
        ("terminated", terminated, np.bool_, "bool"),
        ("truncated", truncated, np.bool_, "bool"),
        ("the success in info", success, np.complex128, "number"),
    ):
        shapes = [axis, ()] if value is success else [axis]
        if np.shape(value) not in shapes or not np.can_cast(getattr(value, "dtype", object), number):
            count = f"{expected}[{axis[0]}], one for each agent" if axis else f"a single {expected}"
            raise EnvError(f"{step} {name} of type {_described(value)}: expected {count}.")
    for what, before, after in (("a state", state, new), ("an observation", observation, seen)):
        if jax.tree.structure(after) != jax.tree.structure(before):
            raise EnvError(f"{step} {what} of another structure than reset: expected {jax.tree.structure(before)}.")
        for (path, x), y in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
            # Values of steps are cast to the type of reset: floats as integers would lose their fractions.
            is_cast = x.dtype == y.dtype if is_key(x) or is_key(y) else np.can_cast(y.dtype, x.dtype, "same_kind")
            if x.shape != y.shape or not is_cast:
                place = f" whose leaf {jax.tree_util.keystr(path)} is" if path else ""
                kinds = f"{_described(y)}, where reset returns {_described(x)}"
                raise EnvError(f"{step} {what}{place} {kinds}: use one type and shape.")
    return env


def _described(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") else type(x).__name__


def _traced(what: str, function: Callable[..., Any], names: tuple[str, ...], *arguments: Any) -> tuple[Any, ...]:
    """Shapes and types of what ``function`` returns, which has to be a tuple of ``names``."""
    with custom_code_errors(what):
        result = jax.eval_shape(function, *arguments)
    if not isinstance(result, tuple) or len(result) != len(names):
        got = f"{len(result)} values" if isinstance(result, tuple) else "one value"
        raise EnvError(f"{what} returns {got}: expected ({', '.join(names)}).")
    return result


def _check_observation(observation: PyTree, space: Space, axis: tuple[int, ...], returns: str) -> None:
    """Raise ``EnvError`` unless ``observation`` has the parts, shapes and types of ``space``, with the ``axis`` of agents."""

    def fits(x: Any, part: LeafSpace) -> bool:
        if getattr(x, "shape", None) != (*axis, *part.shape):
            return False
        if isinstance(part, Box):
            return part.dtype != "uint8" or x.dtype == np.uint8
        return np.issubdtype(x.dtype, np.integer) or (isinstance(part, MultiBinary) and x.dtype == np.bool_)

    # The descriptions of the parts are leaves of a pytree themselves.
    parts, structure = jax.tree.flatten(tree(lambda part: part, space))
    is_same = jax.tree.structure(observation) == structure
    if not is_same or not all(map(fits, jax.tree.leaves(observation), parts)):
        agents = f", of each of {axis[0]} agents" if axis else ""
        raise EnvError(
            f"{returns} an observation {jax.tree.map(_described, observation)}: its observation space is {space}{agents}."
        )
