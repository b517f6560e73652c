"""Values of other libraries that one number or word cannot convert. ``convert`` of an entry in ``other_libraries`` names the function.

Each function takes the value and a ``Theirs``, and returns our settings; None if nothing corresponds to the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proximo.convert.sources import expression
from proximo.other_libraries import Entry

Ours = dict[str, Any]


class Theirs(dict[str, Any]):
    """All settings of the other library by name, with their defaults."""

    def __init__(self, settings: Mapping[str, Any]):
        super().__init__(settings)
        self.unconverted: list[str] = []
        """Parts of values to which nothing corresponds, for the report."""

    @property
    def recurrent(self) -> bool:
        """Whether the policy has a memory."""
        return "Lstm" in str(self.get("policy"))

    @property
    def batch(self) -> int:
        """Steps of a rollout in all environments."""
        envs, steps = ("n_workers", "worker_steps") if "worker_steps" in self else ("n_envs", "n_steps")
        return int(self[envs]) * int(self[steps])


def part(value: Any, theirs: Theirs, entry: Entry) -> Ours:
    """Nothing: another setting is converted together with this one."""
    return {}


def nothing(value: Any, theirs: Theirs, entry: Entry) -> None:
    """Nothing corresponds to it."""


def policy(value: str, theirs: Theirs, entry: Entry) -> Ours:
    """The networks of Stable-Baselines3's policies."""
    pictures = "Cnn" in value
    settings: Ours = {"towers": "shared"} if pictures else {}
    if theirs.recurrent:
        # Layers are after the LSTM. Those of a network for pictures are only the convolutions.
        settings |= {"memory": "lstm", "memory_size": 256, "hidden_sizes": [], "head_sizes": [] if pictures else [64, 64]}
        settings["sequence_length"] = _sequence_length(theirs)
    return settings


def minibatches(value: int, theirs: Theirs, entry: Entry) -> Ours:
    """The number of minibatches from the size of one."""
    return {"num_minibatches": max(1, theirs.batch // int(value))}


def _sequence_length(theirs: Theirs) -> int:
    """The longest sequences of which a rollout has a multiple of the number of minibatches; 0 for the whole rollout."""
    steps, count = int(theirs["n_steps"]), max(1, theirs.batch // int(theirs["batch_size"]))
    fitting = (length for length in range(steps, 0, -1) if steps % length == 0 and theirs.batch // length % count == 0)
    length = next(fitting, steps)
    return 0 if length == steps else length


def schedule(value: Any, theirs: Theirs, entry: Entry) -> Ours:
    """``lin_0.001`` of RL Zoo, a number, or None or a negative number for off."""
    if isinstance(value, str) and value.startswith("lin_"):
        return {entry.ours[0]: f"linear({value.removeprefix('lin_')}, 0)"}
    return {entry.ours[0]: 0.0 if value is None or float(value) < 0 else float(value)}


def sde(value: bool, theirs: Theirs, entry: Entry) -> Ours:
    """Steps between two samples of the noise; with -1, those of a rollout."""
    every = int(theirs.get("sde_sample_freq", -1))
    return {"sde_every": every if every > 0 else int(theirs["n_steps"])} if value else {}


def net_arch(value: Any, theirs: Theirs, entry: Entry) -> Ours | None:
    """Layers of policy and value, after the memory or the convolutions if there are any."""
    pi, vf = (value.get("pi", []), value.get("vf", [])) if isinstance(value, Mapping) else (value, value)
    if not all(isinstance(size, int) for size in (*pi, *vf)):
        return None
    if not theirs.recurrent and "Cnn" not in str(theirs.get("policy")):
        return {"hidden_sizes": list(pi)} | ({"critic_hidden_sizes": list(vf)} if pi != vf else {})
    return {"head_sizes": list(pi)} | ({"critic_head_sizes": list(vf)} if pi != vf else {})


def critic_lstm(value: bool, theirs: Theirs, entry: Entry) -> Ours | None:
    """Whether the value function has a separate LSTM."""
    if not value and not theirs.get("shared_lstm"):
        return None
    return {"towers": "separate"} if value and "Cnn" not in str(theirs.get("policy")) else {}


def normalize(value: Any, theirs: Theirs, entry: Entry) -> Ours:
    """RL Zoo's VecNormalize: true, or its arguments."""
    arguments = expression(value) if isinstance(value, str) else value
    arguments = dict(arguments) if isinstance(arguments, Mapping) else {"norm_obs": bool(value), "norm_reward": bool(value)}
    settings = {"normalize_observation": arguments.get("norm_obs", True), "normalize_reward": arguments.get("norm_reward", True)}
    return settings | ({"clip_observation": arguments["clip_obs"]} if "clip_obs" in arguments else {})


def wrapper(value: Any, theirs: Theirs, entry: Entry) -> Ours:
    """RL Zoo's wrappers: AtariWrapper and FrameSkip."""
    settings: Ours = {}
    for item in value if isinstance(value, list) else [value]:
        path, arguments = next(iter(item.items())) if isinstance(item, Mapping) else (item, {})
        name = str(path).rpartition(".")[2]
        if name == "AtariWrapper":
            life_loss = (arguments or {}).get("terminal_on_life_loss", True)
            settings |= {"preprocessing": "atari", "life_loss": life_loss, "clip_reward": "sign"}
        elif name == "FrameSkip":
            settings["action_repeat"] = (arguments or {}).get("skip", 4)
        else:
            theirs.unconverted.append(f"{entry.name} {name}: {entry.note}")
    return settings


def env_settings(value: Any, theirs: Theirs, entry: Entry) -> Ours:
    """Parameters of the environment, also as a Python expression."""
    return {"env_settings": expression(value) if isinstance(value, str) else dict(value)}


def anneal(value: float, theirs: Theirs, entry: Entry) -> Ours:
    """CleanRL's learning rate, which ``anneal_lr`` lets decrease to 0."""
    return {"learning_rate": f"linear({value}, 0)" if theirs.get("anneal_lr") else value}


def clip_vloss(value: bool, theirs: Theirs, entry: Entry) -> Ours:
    """CleanRL's value clipping, with the clip range of the policy."""
    return {"clip_value_eps": theirs["clip_coef"] if value else 0.0}


def updates(value: int, theirs: Theirs, entry: Entry) -> Ours:
    """The steps of a number of updates."""
    return {"total_steps": int(value) * theirs.batch}


def decay(value: Mapping[str, Any], theirs: Theirs, entry: Entry) -> Ours:
    """A polynomial schedule, which may end after the training."""
    initial, final, power = (float(value[name]) for name in ("initial", "final", "power"))
    fraction = float(value["max_decay_steps"]) / float(theirs["updates"])
    if initial == final:
        return {entry.ours[0]: initial}
    numbers = [
        f"{number:g}" for number in (initial, final, *([power] if power != 1 else []), *([fraction] if fraction != 1 else []))
    ]
    return {entry.ours[0]: f"{'linear' if power == 1 else 'polynomial'}({', '.join(numbers)})"}


def decay_clip(value: Mapping[str, Any], theirs: Theirs, entry: Entry) -> Ours:
    """The clip ranges of policy and value."""
    range_of_policy = decay(value, theirs, entry)["clip_eps"]
    return {"clip_eps": range_of_policy, "clip_value_eps": range_of_policy}


def head_sizes(value: int, theirs: Theirs, entry: Entry) -> Ours:
    """A layer that policy and value share, and one for each."""
    return {"shared_sizes": [int(value)], "head_sizes": [int(value)]}


def sequence_length(value: int, theirs: Theirs, entry: Entry) -> Ours:
    """Whole episodes become whole rollouts."""
    return {"sequence_length": max(0, int(value))}


def reset_params(value: Mapping[str, Any], theirs: Theirs, entry: Entry) -> Ours:
    """Memory Gym's reset parameters; seeds are levels."""
    others = {name: item for name, item in value.items() if name not in ("start-seed", "num-seeds")}
    first, count = int(value.get("start-seed", 0)), int(value.get("num-seeds", 100))
    return {"env_settings": others, "levels": f"{first}:{first + count}"}


FUNCTIONS: dict[str, Callable[[Any, Theirs, Entry], Ours | None]] = {
    "part": part, "none": nothing, "policy": policy, "minibatches": minibatches, "schedule": schedule, "sde": sde, "net_arch": net_arch,
    "critic_lstm": critic_lstm, "normalize": normalize, "wrapper": wrapper, "env_settings": env_settings, "anneal": anneal,
    "clip_vloss": clip_vloss, "updates": updates, "decay": decay, "decay_clip": decay_clip, "head_sizes": head_sizes,
    "sequence_length": sequence_length, "reset_params": reset_params,
}  # fmt: skip
