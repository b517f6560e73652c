"""Values that one number or word cannot convert: a rule takes the value and a ``Theirs``, and returns our value, or
several settings by name; None if nothing corresponds. ``convert`` of an ``Entry`` names the rule."""

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

from proximo.config import LEAVES, coercion, text_of
from proximo.other_libraries import Library

Ours = dict[str, Any]


class Theirs(dict[str, Any]):
    """All settings of the other library by name, with their defaults."""

    def __init__(self, settings: Mapping[str, Any], library: Library):
        super().__init__({name: scalar(x) if isinstance(x, str) else x for name, x in settings.items()})
        self.entries, self.defaults = library.by_name, library.arguments
        self.unconverted: list[str] = []
        """Parts of values to which nothing corresponds, for the report."""
        self.recurrent, self.images, self.several = (word in str(self.get("policy")) for word in ("Lstm", "Cnn", "MultiInput"))
        """Whether the policy has a memory, reads images with a CNN, or reads several entries."""

    def unread(self, where: str, arguments: Mapping[str, Any], *read: str) -> None:
        """Add to the report the ``arguments`` that are neither ``read`` nor their default."""
        for name, value in arguments.items():
            if name not in read and self.defaults[where].get(name, self) != value:
                note = self.entries[name].note if name in self.entries else ""
                note = note or "nothing in proximo corresponds to it"
                self.unconverted.append(f"{where} {name} = {text_of(value)}: {note}")

    @property
    def batch(self) -> int:
        """Steps of a rollout in all environments."""
        names = {entry.ours: name for name, entry in self.entries.items() if name in self}
        return int(self[names["num_envs",]]) * int(self[names["num_steps",]])


def _network(value: str, theirs: Theirs) -> Ours | None:
    if value in ("lstm", "cnn_lstm"):  # it learns from the whole rollout
        return {"hidden_sizes": [], "memory": "lstm", "memory_size": int(theirs.get("nlstm", 128)), "sequence_length": 0}
    if value == "mlp":
        return {"encoder": "mlp", "hidden_sizes": [int(theirs.get("num_hidden", 64))] * int(theirs.get("num_layers", 2))}
    return {"encoder": "nature_cnn"} if value == "cnn" else None


def _policy(value: str, theirs: Theirs) -> Ours:
    settings: Ours = {"towers": "shared"} if theirs.images or (theirs.several and not theirs.recurrent) else {}
    if theirs.recurrent or theirs.several:
        # Layers are after the LSTM or the entries of the observation; a network for images has none.
        settings |= {"hidden_sizes": [], "head_sizes": [] if theirs.images else [64, 64]}
    if theirs.several:
        shares = "; policy and value share it, and with towers=separate each has one" if theirs.recurrent else ""
        size = "it has 256 features, so set cnn_features=256 if it reads images"
        theirs.unconverted.append(f"the CNN of {value}: {size}{shares}")
    if not theirs.recurrent:
        return settings
    if theirs.images and theirs.get("enable_critic_lstm", True) and theirs.get("share_features_extractor", True):
        theirs.unconverted.append(
            "enable_critic_lstm = true: policy and value share the convolutions and have an LSTM each; with towers=shared they share both"
        )
    # The longest sequences that divide equally among the minibatches; 0 means the whole rollout.
    steps, count = int(theirs["n_steps"]), max(1, theirs.batch // int(theirs["batch_size"]))
    fitting = (length for length in range(steps, 0, -1) if steps % length == 0 and theirs.batch // length % count == 0)
    length = next(fitting, steps)
    return settings | {"memory": "lstm", "memory_size": 256, "sequence_length": 0 if length == steps else length}


def _log_std(value: float, theirs: Theirs) -> Ours:
    """With gSDE, Stable-Baselines3 multiplies by the norm of the features, proximo by their root mean square."""
    if not theirs.get("use_sde"):
        return {"log_std_init": value}
    # The number of features that the policy's outputs read. Without layers, it depends on the observation.
    layers = _layers(theirs["net_arch"])[0] if "net_arch" in theirs else [] if theirs.images else [64, 64]
    unlayered = int(theirs.get("lstm_hidden_size", 256)) if theirs.recurrent else 512 if theirs.images else None
    size, given = layers[-1] if layers else unlayered, f"log_std_init = {value:g} with use_sde"
    if not isinstance(size, int):
        theirs.unconverted.append(f"{given}: no layer gives the number of features n; set log_std_init to {value:g} + ½ ln n")
        return {"log_std_init": value}
    exact, highest = round(value + 0.5 * math.log(size), 4), LEAVES["log_std_init"].high or math.inf
    if exact > highest:
        theirs.unconverted.append(f"{given}: the equivalent is {exact:g}, but proximo allows at most {highest:g}")
    return {"log_std_init": min(exact, highest)}


def _layers(value: Any) -> tuple[list[Any], list[Any]]:
    """The layers of policy and value. Earlier versions have the form ``[dict(pi=…, vf=…)]``."""
    value = value[0] if isinstance(value, list) and value and isinstance(value[0], Mapping) else value
    return (value.get("pi", []), value.get("vf", [])) if isinstance(value, Mapping) else (value, value)


def _net_arch(value: Any, theirs: Theirs) -> Ours | None:
    pi, vf = _layers(value)
    if not all(isinstance(size, int) for size in (*pi, *vf)):
        return None
    kind = "head_sizes" if theirs.recurrent or theirs.images or theirs.several else "hidden_sizes"
    return {kind: list(pi)} | ({f"critic_{kind}": list(vf)} if pi != vf else {})


def _optimizer(value: str, theirs: Theirs) -> Ours | None:
    """PyTorch's Adam or AdamW. Stable-Baselines3 sets ε of Adam to 1e-5 if no arguments are given."""
    given = theirs.get("optimizer_kwargs")
    arguments = dict(expression(given) or {})
    read = {"adam": ("eps", "betas"), "adamw": ("eps", "betas", "weight_decay")}.get(value)
    theirs.unread("optimizer_kwargs", arguments, *(read or ()))
    if read is None:
        return None
    eps = arguments.get("eps", 1e-5 if value == "adam" and given is None else 1e-8)
    settings: Ours = {"optimizer": value, "optimizer_settings.eps": eps}
    if "betas" in arguments:
        settings["optimizer_settings.b1"], settings["optimizer_settings.b2"] = arguments["betas"]
    if value == "adamw":
        settings["optimizer_settings.weight_decay"] = arguments.get("weight_decay", 0.01)
        theirs.unconverted.append(
            "AdamW: it decays every parameter; proximo's adamw decays weight matrices and convolution kernels"
        )
    return settings


def _normalize(value: Any, theirs: Theirs) -> Ours:
    """RL Zoo's VecNormalize: true, or its arguments."""
    arguments = expression(value)
    given = {"norm_obs": bool(value), "norm_reward": bool(value), **(arguments if isinstance(arguments, Mapping) else {})}
    gamma = ["gamma"] if given.get("gamma") == theirs.get("gamma") else []  # RL Zoo's default
    theirs.unread("normalize", given, "norm_obs", "norm_reward", "clip_obs", *gamma)
    settings = {"normalize_observation": given["norm_obs"], "normalize_reward": given["norm_reward"]}
    # VecNormalize clips only the observations that it normalizes.
    return settings | ({"clip_observation": given["clip_obs"]} if given["norm_obs"] and "clip_obs" in given else {})


def _wrapper(value: Any, theirs: Theirs) -> Ours:
    settings: Ours = {}
    for item in value if isinstance(value, list) else [value]:
        path, given = next(iter(item.items())) if isinstance(item, Mapping) else (item, {})
        name = str(path).rpartition(".")[2]
        where = f"env_wrapper {name}"
        arguments = {**theirs.defaults.get(where, {}), **(given or {})}
        if name == "AtariWrapper":
            theirs.unread(where, given or {}, "terminal_on_life_loss", "clip_reward")
            settings |= {"preprocessing": "atari", "life_loss": arguments["terminal_on_life_loss"]}
            settings["clip_reward"] = "sign" if arguments["clip_reward"] else "none"
        elif name == "FrameSkip":
            theirs.unread(where, given or {}, "skip")
            settings["action_repeat"] = arguments["skip"]
        else:
            theirs.unconverted.append(f"{where}: {theirs.entries['env_wrapper'].note}")
    return settings


def _decay(value: Mapping[str, Any], theirs: Theirs) -> float | str:
    """A polynomial schedule, which may end after the training."""
    initial, final, power = (float(value[name]) for name in ("initial", "final", "power"))
    fraction = float(value["max_decay_steps"]) / float(theirs["updates"])
    if initial == final:
        return initial
    numbers = [initial, final, *([power] if power != 1 else []), *([fraction] if fraction != 1 else [])]
    return f"{'linear' if power == 1 else 'polynomial'}({', '.join(f'{number:g}' for number in numbers)})"


def _reset_params(value: Mapping[str, Any], theirs: Theirs) -> Ours:
    """Memory Gym's reset parameters; seeds are levels."""
    others = {name: item for name, item in value.items() if name not in ("start-seed", "num-seeds")}
    first, count = int(value.get("start-seed", 0)), int(value.get("num-seeds", 100))
    return {"env_settings": others, "levels": f"{first}:{first + count}"}


def _schedule(value: Any, theirs: Theirs) -> float | str:
    """``lin_0.001`` of RL Zoo, a number, or None or a negative number for off."""
    if isinstance(value, str) and value.startswith("lin_"):
        return f"linear({value.removeprefix('lin_')}, 0)"
    return 0.0 if value is None else max(0.0, float(value))


def _critic_lstm(value: bool, theirs: Theirs) -> Ours | None:
    if not value and not theirs.get("shared_lstm"):
        return None
    return {"towers": "separate"} if value and not theirs.images else {}


def _sde(value: bool, theirs: Theirs) -> Ours:
    every = int(theirs.get("sde_sample_freq", -1))  # -1 is once per rollout
    return {"sde_every": every if every > 0 else int(theirs["n_steps"])} if value else {}


RULES: dict[str, Callable[[Any, Theirs], Any]] = {
    "none": lambda value, theirs: None,
    "part": lambda value, theirs: {},  # it is converted together with another one
    "each": lambda value, theirs: value,  # the same value for several settings
    "minibatches": lambda value, theirs: {"num_minibatches": max(1, theirs.batch // int(value))},
    "env_settings": lambda value, theirs: {"env_settings": dict(expression(value))},
    # A flag lets the learning rate of CleanRL and PPO-JAX decrease to 0.
    "anneal": lambda value, theirs: f"linear({value}, 0)" if theirs.get("anneal_lr", theirs.get("decay_lr")) else value,
    # PPO-JAX limits each network, or none.
    "max_grad_norm": lambda value, theirs: value if theirs.get("decay_lr") else {"max_grad_norm": 1e9},
    "clip_vloss": lambda value, theirs: theirs["clip_coef"] if value else 0.0,
    "head_sizes": lambda value, theirs: [int(value)],  # a layer that policy and value share, and one for each
    "sequence_length": lambda value, theirs: max(0, int(value)),  # whole episodes become whole rollouts
    "name": lambda value, theirs: value.removeprefix("MiniGrid-").removesuffix("-v0"),
    "updates": lambda value, theirs: {"total_steps": int(value) * theirs.batch},
    "batches": lambda value, theirs: int(value) * theirs.batch,
    "network": _network, "policy": _policy, "log_std": _log_std, "net_arch": _net_arch, "optimizer": _optimizer, "sde": _sde,
    "normalize": _normalize, "wrapper": _wrapper, "decay": _decay, "reset_params": _reset_params, "schedule": _schedule,
    "critic_lstm": _critic_lstm,
}  # fmt: skip
"""The rules by name."""


def scalar(text: str) -> Any:
    """The number, truth value or None that ``text`` writes, or ``text``. YAML reads ``3e-4`` as text."""
    return None if text.lower() == "none" else coercion.scalar(text)


def expression(value: Any) -> Any:
    """The value of a Python expression, such as ``dict(net_arch=[64])``, where a name stands for itself; other objects
    are returned unchanged. Raises ``ValueError`` if it has more than calls of ``dict``, names and literals."""
    return _value(ast.parse(value.strip(), mode="eval").body) if isinstance(value, str) else value


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            return {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        case ast.Dict():
            return {_value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
    return ast.literal_eval(node)
