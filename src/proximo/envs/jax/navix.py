"""``navix:Navix-Empty-5x5-v0``: navix's ``_step``; its ``step`` resets in the step behind an end and ignores that action."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.envs.jax import libraries
from proximo.envs.settings import hold_names, take_limit
from proximo.errors import ConfigError, EnvError, nearest
from proximo.spaces import Box, Discrete, MultiDiscrete
from proximo.users_code import users_code

SIZES = ("5x5", "6x6", "8x8", "16x16")
NAMES = (
    *(f"Navix-{task}-{size}-v0" for task in ("Empty", "Empty-Random", "DoorKey", "DoorKey-Random") for size in SIZES),
    "Navix-FourRooms-v0",
    *(f"Navix-LavaGapS{size}-v0" for size in (5, 6, 7)),
    *(f"Navix-SimpleCrossing{size}-v0" for size in ("S9N1", "S9N2", "S9N3", "S11N5")),
    *(f"Navix-Dynamic-Obstacles-{size}-v0" for size in ("5x5", "5x5-Random", "6x6", "6x6-Random", "8x8", "16x16")),
    "Navix-DistShift1-v0", "Navix-DistShift2-v0",
    *(f"Navix-GoToDoor-{size}-v0" for size in SIZES[:3]),
)  # fmt: skip
UNSOLVABLE = "Navix-KeyCorridor"
"""Its ball, which ends an episode in MiniGrid when it is picked up, is neither picked up nor a goal in navix; its locked door stands open."""
LIMIT = 100
"""Steps of an episode, navix's own default."""
VIEWS = ("symbolic", "symbolic_first_person", "rgb", "rgb_first_person")
COUNTS = (11, 6, 4)
"""Kinds of things, colours, and states of a door or directions: what a cell of a symbolic view holds."""


def names() -> list[str]:
    """What navix has; none where it is not installed."""
    return libraries.listed("navix", NAMES)


def from_name(name: str, settings: dict[str, Any]) -> NavixEnvironment:
    """navix's environment; ``settings`` are ``max_steps`` and ``view``."""
    return NavixEnvironment(name, settings)


class NavixEnvironment:
    """An environment of navix in proximo's protocol. A symbolic view is read one-hot, as MiniGrid's is here."""

    render_fps = 6

    def __init__(self, name: str, settings: dict[str, Any]):
        env_id = f"navix:{name}"
        library = libraries.load("navix", env_id, "navix")
        if name.startswith(UNSOLVABLE):
            raise EnvError(f"{env_id} cannot be solved: navix has no reward for its ball, and its locked door stands open.")
        libraries.hold_known(name, library.registry(), "navix")
        hold_names(settings, ("max_steps", "view"), env_id)
        limit, settings = take_limit(settings, "max_steps", LIMIT)
        view = settings.get("view", VIEWS[0])
        if view not in VIEWS:
            hint = nearest(str(view), VIEWS)
            raise ConfigError(f"env_settings: view = {view!r}{hint}: expected {', '.join(VIEWS)}.")
        with users_code(f"Making {env_id}"):
            self.env = library.make(name, max_steps=limit, observation_fn=getattr(library.observations, view))
        self.default_params = ()
        self.is_picture, self._picture = view.startswith("rgb"), library.observations.rgb
        self._background = library.rendering.cache.RenderingCache.init
        shape = jax.eval_shape(self.env.reset, libraries.legacy(jax.random.key(0))).observation.shape
        cells = MultiDiscrete(tuple(np.tile(COUNTS, shape[0] * shape[1]).tolist()), shape=shape)
        self.observation_space = Box(shape, 0.0, 255.0, "uint8") if self.is_picture else cells
        self.action_space = Discrete(len(self.env.action_set))
        self._draw = jax.jit(self._frame)

    def reset(self, key: Key[Array, ""], params: PyTree) -> tuple[PyTree, Array]:
        """navix's timestep is the state."""
        return self._kept(self.env.reset(libraries.legacy(key)))

    def step(self, key: Key[Array, ""], state: PyTree, action: Array, params: PyTree) -> tuple:
        """One step; a success is told by its reward."""
        timestep = self.env._step(state, action)
        state, observation = self._kept(timestep)
        reward = timestep.reward
        return state, observation, reward, timestep.is_termination(), timestep.is_truncation(), {"success": reward > 0}

    def _kept(self, timestep: PyTree) -> tuple[PyTree, Array]:
        """The timestep and its observation; without the picture of the empty level, a megabyte where it has 16×16 cells, unless
        it is needed to draw the next one."""
        state = timestep.state if self.is_picture else timestep.state.replace(cache=None)
        return timestep.replace(state=state), timestep.observation

    def render(self, state: PyTree, params: PyTree) -> np.ndarray:
        """The whole level."""
        return np.asarray(self._draw(state.state))

    def _frame(self, state: PyTree) -> Array:
        cache = state.cache or self._background(state.grid)
        return self._picture(state.replace(cache=cache)).astype(jnp.uint8)
