"""Episodes to watch: an agent plays one after the other in one environment, and every step can be drawn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.jax_vector import JaxAsGymnasium
from proximo.config import Config
from proximo.custom_code import custom_code_errors
from proximo.envs import Environment, GymnasiumEnvironment
from proximo.envs.gymnasium.environment import construction_errors
from proximo.envs.gymnasium.parallel_env import ParallelEnv
from proximo.envs.gymnasium.rollout_buffer import UNREPORTED
from proximo.envs.gymnasium.stepper import SUCCESS_KEYS, environment_seeds, reported_success
from proximo.envs.gymnasium.vector_env_adapter import autoreset_of, final_observation
from proximo.envs.libraries import num_agents
from proximo.errors import EnvError
from proximo.evaluation.episodes import environment_source, evaluation_key
from proximo.evaluation.evaluators import JAX_TOGETHER
from proximo.evaluation.policy import Policy
from proximo.networks.custom.forward import Forward
from proximo.rendering.pictures import Draw, can_draw, checked_picture, image_of, no_renderer
from proximo.rendering.window import prepare_drawing, prepare_pygame
from proximo.spaces import ACTION_MASK, Joint, Space, action_dtype, allowed_action, leaves, nested, unflatten, zeros
from proximo.types import is_key, select

DEFAULT_FPS = 30.0
Agent = Callable[[Any, np.ndarray, np.ndarray, np.ndarray, Callable[[], Key[Array, ""]]], Any]
"""``agent(observation, episode_start, present, reward, key) -> action``. All arrays have a leading axis of agents, which is 1 if there
is one. ``reward`` is that of the last action, and ``key()`` may sample the actions."""
Step = tuple[Draw, np.ndarray, bool, bool, bool | None]
"""What draws the environment as it is now; the reward of each agent; whether the episode of the environment terminated or was truncated,
and success, if it is reported."""


class Player:
    """One environment, in which the first episodes of an evaluation are played, with the same keys and preprocessing: a single Gymnasium
    environment, or the only one of a vector environment."""

    draws_at_once = True
    """Whether pictures are drawn at once. Otherwise, a stored one has a state of the environment."""
    _has_axis: bool
    """Whether the environment takes and returns arrays with an axis of agents."""

    def __init__(self, env: Environment, config: Config, seed: int, stream: int, window: bool = False):
        self.env: Any = env
        self.config, self.env_id = config, config.env.id
        self._source, self._key, self._total = environment_source(seed, stream), evaluation_key(seed, stream), 0
        self._prepare(window)

    def _prepare(self, window: bool) -> None:
        self.limit, modes = self.env.spec.max_episode_steps, self.env.render_modes
        self._window = window and "human" in modes
        self._declares_mode, self._renders = "rgb_array" in modes, True
        if not self._window:
            prepare_drawing(self.env_id)
        with custom_code_errors(f"Making {self.env_id} to watch"):
            made = self._make()
        self._lacks_mode = self.env.without_render_mode(made)
        names, space = self.env.spec.agents, self.env.observation_space
        self._single, self._has_axis = (Agents(made, space), True) if names else (made, self.env.make is None)

    def _make(self) -> Any:
        """One environment that draws, if it can. It may accept the mode ``rgb_array`` without declaring it,
        or draw without the argument ``render_mode``."""
        if (make := self.env.make) is None:
            return OnlyEnvironment(self.env.make_vector(1), self.env_id)
        try:
            return make(render_mode="human" if self._window else "rgb_array")
        except Exception as error:
            if (self._window or self._declares_mode) and not isinstance(error, TypeError):
                raise
            self._window, self._renders = False, isinstance(error, TypeError)
            return make()

    def episode(self, number: int, agent: Agent, reward: np.ndarray) -> Iterator[Step]:
        """Play an episode without an end. Yields its start and each step. ``reward`` is the last one before it."""
        space, actions, count = self.env.observation_space, self.env.action_space, num_agents(self.env)
        with custom_code_errors(f"{self.env_id}.reset"):
            observation, _ = self._single.reset(**self._arguments(number))
        over, any_truncated, gained, success = np.zeros(count, bool), False, np.zeros(count, np.float32), UNREPORTED
        starts = present = self._present(over)
        while True:
            observation = unflatten(
                space, [np.asarray(x.of(observation)).astype(x.dtype).reshape((count, *x.shape)) for x in leaves(space)]
            )
            is_over, is_success = not present.any(), None if success == UNREPORTED else bool(success)
            yield self._picture(observation), gained, is_over and not any_truncated, is_over and any_truncated, is_success
            self._total += 1
            chosen = agent(observation, starts, present, reward, self._action_key)
            if not isinstance(actions, Joint):
                chosen = np.asarray(chosen, action_dtype(actions)).reshape((count, *actions.shape))
            action = chosen if self._has_axis else jax.tree.map(lambda x: x[0], chosen)
            with custom_code_errors(f"{self.env_id}.step"):
                observation, *results, info = self._single.step(action)
            given, terminated, truncated = (np.asarray(x).reshape(count) for x in results)
            # Returns are sums of float32 rewards, as in a rollout. An absent agent gets none.
            reward = gained = np.where(present, given, 0.0).astype(np.float32)
            any_truncated = bool((present & truncated & ~terminated).any())
            over, success, acted = over | terminated | truncated, reported_success(info), present
            present = self._present(over)
            starts = present & ~acted

    def _present(self, over: np.ndarray) -> np.ndarray:
        """Which agents act now, where ``over`` marks those whose episode has ended. One may join later."""
        return self._single.present() if isinstance(self._single, Agents) else ~over

    def _arguments(self, number: int) -> dict[str, int]:
        if self.env.make is None:  # most vector environments add the number of an environment to their seed
            return {"seed": (environment_seeds(1, self._source)[0] + number) % 2**31}
        if number and not self.config.network.reset_memory:
            return {}
        return {"seed": environment_seeds(number + 1, self._source)[-1]}  # the first episode of environment ``number``

    def _action_key(self) -> Key[Array, ""]:
        return jax.random.fold_in(self._key, self._total - 1)

    def _picture(self, observation: Any) -> Draw:
        if self._window:
            return lambda: None
        frame = self._render() if self._renders else None  # now: the next step changes it
        if frame is None:
            self._renders = False
            frame = image_of(self.env.observation_space, observation)
        if frame is None:
            raise EnvError(self._lacks_mode) if self._lacks_mode else no_renderer(self.env_id)
        return lambda: frame

    def _render(self) -> np.ndarray | None:
        try:
            with construction_errors(self.env_id, "Drawing"):
                frame = self._single.render()
        except EnvError as error:
            if isinstance(error.__cause__, NotImplementedError) or not self._declares_mode:
                return None
            if self._lacks_mode:
                raise EnvError(self._lacks_mode) from error
            raise
        if isinstance(frame, list):  # of the mode rgb_array_list, which returns the frames since the last call
            frame = frame[-1] if frame else None
        return None if frame is None else np.array(checked_picture(frame, self.env_id))

    def close(self) -> None:
        """End the environment."""
        with custom_code_errors(f"{self.env_id}.close"):
            self._single.close()


class Agents:
    """A ``ParallelEnv`` with an axis of agents. Those that observe nothing observe zeros."""

    def __init__(self, env: ParallelEnv, space: Space):
        self.env, self.render, self.close, self.names, self.nothing = env, env.render, env.close, env.names, zeros(space, ())

    def present(self) -> np.ndarray:
        """Which agents act in the next step."""
        present = self.env.present
        return np.array([name in present for name in self.names])

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        observations, _ = self.env.reset(**arguments)
        return self._stacked(observations), {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        acting = self.env.present
        given = {name: jax.tree.map(lambda x, i=i: x[i], actions) for i, name in enumerate(self.names) if name in acting}
        observations, *results, infos = self.env.step(given)
        columns = ([of_agents.get(name, False) for name in self.names] for of_agents in results)
        reported = [info for info in infos.values() if reported_success(info) != UNREPORTED]
        return self._stacked(observations), *columns, {"success": all(map(reported_success, reported))} if reported else {}

    def _stacked(self, observations: dict[str, Any]) -> Any:
        return jax.tree.map(lambda *x: np.stack(x), *(observations.get(name, self.nothing) for name in self.names))


class OnlyEnvironment:
    """A vector environment of one. Its last observation of an episode is the true one."""

    def __init__(self, env: Any, env_id: str):
        self.env, self.resets_at_once = env, autoreset_of(env, env_id) == "same_step"
        self._frame: np.ndarray | None = None
        self._was_reset = False

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self._was_reset = False
        return self.env.reset(seed=seed)

    def step(self, actions: Any) -> tuple[Any, ...]:
        seen, reward, terminated, truncated, info = self.env.step(actions)
        self._was_reset = self.resets_at_once and bool(np.all(np.asarray(terminated) | truncated))
        if self._was_reset:
            finals = [final_observation(info, i) for i in range(len(np.asarray(terminated)))]
            seen = seen if any(final is None for final in finals) else jax.tree.map(lambda *x: np.stack(x), *finals)
            info = info.get("final_info", info)
        return seen, reward, terminated, truncated, {key: np.asarray(info[key]) for key in SUCCESS_KEYS if key in info}

    def render(self) -> np.ndarray | None:
        """The picture; None if the vector environment cannot draw. With same-step autoreset, an episode has
        no picture of its final observation: the one before it stays."""
        if not self._was_reset:
            frames = self.env.render() if hasattr(self.env, "render") else None
            self._frame = None if frames is None else frames[0]
        return self._frame

    def close(self) -> None:
        self.env.close()


class JaxPlayer(Player):
    """A JAX environment, drawn by its ``render``. It plays the episodes of a ``JaxEvaluator`` in order."""

    draws_at_once = False

    def _prepare(self, window: bool) -> None:
        if not can_draw(self.env):
            raise no_renderer(self.env_id)
        prepare_pygame()
        self.limit, together = self.config.env.max_episode_steps, JAX_TOGETHER if self.config.network.reset_memory else 1
        self._single = JaxAsGymnasium(self.env, self._key, together, self.config.run.matmul_precision)
        self._has_axis = num_agents(self.env) > 1

    def _arguments(self, number: int) -> dict[str, int]:
        return {"seed": number}

    def _action_key(self) -> Key[Array, ""]:
        return self._single.action_key()

    def _picture(self, observation: Any) -> Draw:
        state, render = self._single.state, getattr(self.env, "render", None)
        if render is None:
            return lambda: image_of(self.env.observation_space, observation)

        def draw() -> np.ndarray:
            with custom_code_errors(f"{self.env_id}.render"):
                return checked_picture(render(jax.tree.map(_single, state), self.env.default_params), self.env_id)

        return draw


def _single(x: Any) -> Any:
    return x[0] if is_key(x) else np.asarray(x)[0]


def make_player(env: Environment, config: Config, seed: int, stream: int, window: bool = False) -> Player:
    """One environment to play on. Raises ``EnvError`` if it is known that it cannot be drawn."""
    kind = Player if isinstance(env, GymnasiumEnvironment) else JaxPlayer
    return kind(env, config, seed, stream, window)


@dataclass(frozen=True)
class PlayedStep:
    """An episode after ``step`` steps; step 0 is its reset."""

    episode: int
    step: int
    draw: Draw
    episode_return: float
    """The sum of rewards so far, of all agents."""
    ended: str = ""
    """``terminated``, ``truncated``, or ``cut`` by the player; empty while the episode goes on."""
    success: bool | None = None
    """At the end of an episode, if the environment reports it. None if the player cut the episode off."""

    @property
    def outcome(self) -> dict[str, Any]:
        """``{return, length, success, ended}`` of the episode so far."""
        return {"return": self.episode_return, "length": self.step, "success": self.success, "ended": self.ended}


def policy_agent(policy: Policy, deterministic: bool = True) -> Agent:
    """Acts with a trained policy."""
    count = num_agents(policy.env)
    memory, predict = policy.init_memory(count), getattr(Forward.of(policy.config.network), "predict", None)

    def act(
        observation: Any, episode_start: np.ndarray, present: np.ndarray, reward: np.ndarray, key: Callable[[], Key[Array, ""]]
    ) -> Any:
        nonlocal memory
        if predict is not None:
            return predict(policy.actor_critic, observation, deterministic)
        how = {"deterministic": deterministic, "key": None if deterministic else key(), "reward": reward}
        action, after = policy.predict(observation, memory, episode_start, **how)
        memory = after if present.all() else select(jnp.asarray(present), after, memory)
        return action

    return act


def random_agent(env: Environment, seed: int) -> Agent:
    """Takes every allowed action of ``env`` with the same probability."""
    action_space, rng = env.action_space, np.random.default_rng(seed)

    def act(observation: Any, *_: Any) -> Any:
        masks = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        masks = [None] * num_agents(env) if masks is None else masks
        return nested(action_space, np.stack([allowed_action(action_space, rng, mask) for mask in masks]))

    return act


def play(player: Player, agent: Agent, episodes: int, max_steps: int) -> Iterator[PlayedStep]:
    """Play episodes. Yields each reset and each step. An episode is cut off after ``max_steps``."""
    # Of the last action, also across episodes: a policy that keeps its memory observes it.
    reward = np.zeros(num_agents(player.env), np.float32)
    for episode in range(episodes):
        episode_return = 0.0
        for step, (draw, gained, terminated, truncated, success) in enumerate(player.episode(episode, agent, reward)):
            reward, episode_return = gained, episode_return + float(gained.sum())
            truncated = truncated or 0 < player.limit <= step
            ended = "terminated" if terminated else "truncated" if truncated else "cut" if step >= max_steps else ""
            is_whole = terminated or truncated
            yield PlayedStep(episode, step, draw, episode_return, ended, success if is_whole else None)
            if ended:
                break


def fps_of(env: Environment) -> float:
    """Frames per second that an environment is shown with: its own, 1 … 60, or ``DEFAULT_FPS``."""
    declared = getattr(env, "render_fps", 0.0)
    return float(min(max(declared, 1.0), 60.0)) if declared else DEFAULT_FPS
