"""``navix:Navix-Empty-5x5-v0``: navix without its autoreset (its ``_step``)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from proximo.envs.libraries import Described, check_names, load, take_limit
from proximo.envs.protocol import JaxEnvironment
from proximo.errors import ConfigError, nearest
from proximo.spaces import Box, Discrete, MultiDiscrete

SIZES = ("5x5", "6x6", "8x8", "16x16")
LIMIT = 100
"""Default steps of an episode, as in navix."""
VIEWS = ("symbolic", "symbolic_first_person", "rgb", "rgb_first_person")
COUNTS = (11, 6, 4)
"""Number of objects, of colors, and of door states or directions in a cell of a symbolic view."""


def names() -> list[str]:
    """Return all but KeyCorridor, for whose ball navix has no reward, and whose locked door is open."""
    return [
        *(f"Navix-{task}-{size}-v0" for task in ("Empty", "Empty-Random", "DoorKey", "DoorKey-Random") for size in SIZES),
        "Navix-FourRooms-v0",
        *(f"Navix-LavaGapS{size}-v0" for size in (5, 6, 7)),
        *(f"Navix-SimpleCrossing{size}-v0" for size in ("S9N1", "S9N2", "S9N3", "S11N5")),
        *(f"Navix-Dynamic-Obstacles-{size}-v0" for size in ("5x5", "5x5-Random", "6x6", "6x6-Random", "8x8", "16x16")),
        "Navix-DistShift1-v0", "Navix-DistShift2-v0",
        *(f"Navix-GoToDoor-{size}-v0" for size in SIZES[:3]),
    ]  # fmt: skip


class NavixEnvironment(Described, JaxEnvironment):
    """An environment of navix; ``settings`` are ``max_steps`` and ``view``. Cells are read one-hot."""

    render_fps = 6

    def __init__(self, name: str, settings: dict[str, Any]):
        env_id = f"navix:{name}"
        library = load(env_id)
        check_names(settings, ("max_steps", "view"), env_id)
        limit, settings = take_limit(settings, "max_steps", LIMIT)
        view = settings.get("view", VIEWS[0])
        if view not in VIEWS:
            raise ConfigError(f"env_settings: view = {view!r}{nearest(str(view), VIEWS)}: expected {', '.join(VIEWS)}.")
        self.env = library.make(name, max_steps=limit, observation_fn=getattr(library.observations, view))
        self.default_params = ()
        self.is_picture = view.startswith("rgb")
        shape = jax.eval_shape(lambda: self.env.reset(jax.random.key_data(jax.random.key(0)))).observation.shape
        cells = MultiDiscrete(tuple(np.tile(COUNTS, shape[0] * shape[1]).tolist()), shape=shape)
        self.observation_space = Box(shape, 0.0, 255.0, "uint8") if self.is_picture else cells
        self.action_space = Discrete(len(self.env.action_set))

        @jax.jit
        def draw(state: PyTree) -> Array:
            cache = state.cache or library.rendering.cache.RenderingCache.init(state.grid)
            return library.observations.rgb(state.replace(cache=cache)).astype(jnp.uint8)

        self.render = lambda state, params: np.asarray(draw(state.state))

    def reset(self, key, params):
        return self._results(self.env.reset(jax.random.key_data(key)))[:2]

    def step(self, key, state, action, params):
        return self._results(self.env._step(state, action))

    def _results(self, timestep: PyTree) -> tuple:
        """Drop the cached picture of the empty level (up to 1 MB), unless observations are drawn from it."""
        state = timestep.state if self.is_picture else timestep.state.replace(cache=None)
        ends, success = (timestep.is_termination(), timestep.is_truncation()), {"success": timestep.reward > 0}
        return timestep.replace(state=state), timestep.observation, timestep.reward, *ends, success


from_name = NavixEnvironment
