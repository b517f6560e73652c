"""Act with a policy that was trained by proximo. This file needs NumPy, ONNX Runtime and a ``policy.onnx``.

The README.md beside it has an example.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Arrays = dict[str, Any]


class PolicyError(ValueError):
    """The file is not an exported policy, or an argument does not match the policy."""


class ExportedPolicy:
    """An exported policy, which acts by ``predict``. The memory is an argument and a result of each call."""

    def __init__(self, model: str | Path | bytes | None = None, num_threads: int = 1):
        """Load a policy.

        Args:
            model: The file, or its content; by default the ``policy.onnx`` beside this file.
            num_threads: Threads of ONNX Runtime. More than one is faster only for large networks.

        Raises:
            PolicyError: If the model is not an exported policy.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = num_threads, 3
        model = Path(__file__).with_name("policy.onnx") if model is None else model
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        properties = self.session.get_modelmeta().custom_metadata_map
        if "proximo.interface" not in properties:
            raise PolicyError("The model is not a policy of proximo: expected a policy.onnx that `proximo export` wrote.")
        self.interface = json.loads(properties["proximo.interface"])
        """The keys of each part of the observation, the first memory, and the kind of noise."""
        self._inputs = {x.name: np.zeros(x.shape[1:], dtype_of(x)) for x in self.session.get_inputs()}
        self._outputs = [x.name for x in self.session.get_outputs()]

    @property
    def has_memory(self) -> bool:
        """Whether the policy is recurrent or observes its previous action or reward. If not, its memory is empty."""
        return bool(self.interface["memory"]) or "reward" in self._inputs

    def init_memory(self, num_envs: int = 1) -> Arrays:
        """Return the memory of ``num_envs`` environments before the first step."""
        return {
            name: np.full((num_envs, *self._inputs[name].shape), initial, self._inputs[name].dtype)
            for name, initial in self.interface["memory"].items()
        }

    def predict(
        self,
        observation: Any,
        memory: Mapping[str, Any] | None = None,
        episode_start: Any = None,
        *,
        action_mask: Any = None,
        deterministic: bool = True,
        key: int | np.random.Generator | None = None,
        reward: Any = None,
    ) -> tuple[Any, Arrays]:
        """Choose the action for one observation, or for N stacked observations.

        Args:
            observation: As the environment returns it, or N of them stacked along a leading axis (dicts and tuples entry by entry). Entries
                that only the value function reads may be missing.
            memory: What the last call returned, or ``init_memory``. May be None if the policy has no memory, or if it resets its memory
                and an episode begins in every environment.
            episode_start: Whether an episode begins with this observation: one flag, or N of them. Default: none.
            action_mask: One flag for each choice, or N rows of them; or a tuple with an array for each component. Required if the policy
                was trained with masks, unless the observation has them as its entry ``action_mask``.
            deterministic: Whether to choose the most probable action. Only an export with ``--stochastic`` can sample.
            key: Required to sample: an integer seed, a new one for each call, or a ``numpy.random.Generator``.
            reward: The reward of the last action, or N of them, for policies that observe it. Required from the second step on; if the
                memory is kept across episodes, also at their start.

        Returns:
            The action as the environment takes it, or N of them, and the memory for the next call.

        Raises:
            PolicyError: If an argument is missing, or does not match the policy.
        """
        if deterministic != (key is None):
            raise PolicyError(f"key = {key!r} with deterministic = {deterministic}: pass a key to sample, and only then.")
        if not deterministic and self.interface["noise"] is None:
            raise PolicyError("This policy cannot sample: export it with --stochastic, or pass deterministic=True.")
        if action_mask is not None:
            if "action_mask" not in self._inputs:
                raise PolicyError("action_mask was given, but this policy was trained without action masks: remove it.")
            mask = np.concatenate(action_mask, axis=-1) if isinstance(action_mask, tuple) else action_mask
            parts = observation if isinstance(observation, Mapping) else {"observation": observation}
            observation = {**parts, "action_mask": mask}
        inputs = {name: self._part(observation, name) for name in self.interface["observation"]}
        name, x = next((name, x) for name, x in inputs.items() if name != "action_mask")
        single = x.ndim == self._inputs[name].ndim
        n = 1 if single else len(x)
        inputs = {name: x[None] if single else x for name, x in inputs.items()}
        if "action_mask" in inputs:  # it may have an axis for the components
            inputs["action_mask"] = inputs["action_mask"].reshape(n, *self._inputs["action_mask"].shape)
        starts = np.broadcast_to(np.asarray(False if episode_start is None else episode_start, bool), n)
        resets, initial = starts.all() and self.interface["reset_memory"], self.init_memory(n)
        if memory is None and self.has_memory and not resets:
            raise PolicyError(
                "memory was not given, but this policy has a memory: pass policy.init_memory(N) for N environments at the start, and "
                "afterwards the memory that the last call returned."
            )
        memory = initial if memory is None else memory
        if "reward" in self._inputs:
            begins = resets or all(np.array_equal(memory[name], x) for name, x in initial.items())
            if reward is None and not begins:
                raise PolicyError("reward was not given, but this policy observes it: pass the last reward.")
            inputs["reward"] = np.broadcast_to(np.float32(0.0 if reward is None else reward), n)
        if family := self.interface["noise"]:
            shape = (n, *self._inputs["noise"].shape)
            noise = np.zeros(shape) if deterministic else getattr(np.random.default_rng(key), family)(size=shape)
            inputs["noise"] = noise.astype(np.float32)
        outputs = self.run({**inputs, "episode_start": starts, **memory})
        action = outputs["action"].astype(self.interface["action_dtype"])
        action = nested_action(action[0] if single else action, self.interface.get("action_parts") or [])
        return action, {name: outputs[f"{name}.next"] for name in initial}

    def run(self, inputs: Mapping[str, Any]) -> Arrays:
        """Compute all outputs, also the log-probability, the value and the parameters of the distribution.

        Args:
            inputs: Arrays by name, as ``metadata.json`` lists them; the first axis of each is the N environments.

        Returns:
            The outputs by name. The memory ``x`` of the next call is the output ``x.next``.
        """
        return dict(zip(self._outputs, self.session.run(self._outputs, dict(inputs)), strict=True))

    def _part(self, observation: Any, name: str) -> np.ndarray:
        """The part of an observation that is the input ``name``."""
        try:
            for step in self.interface["observation"][name]:
                observation = observation[step]
        except (KeyError, IndexError, TypeError):
            raise PolicyError(f"The observation lacks {name}: expected all that the environment returns.") from None
        given = np.asarray(observation)
        x = given.astype(self._inputs[name].dtype)
        wrong = ~np.isfinite(x) if x.dtype.kind == "f" else x != given
        if wrong.any():
            raise PolicyError(f"{name} has {given[wrong].flat[0]}: expected a finite {x.dtype}.")
        return x


def nested_action(action: np.ndarray, parts: list[dict[str, Any]]) -> Any:
    """An action of several ``parts`` as the environment takes it, from the vector of their numbers; without parts, the action itself."""
    if not parts:
        return action
    found: dict[Any, Any] = {}
    at = 0
    for part in parts:
        size, place = int(np.prod(part["shape"])), found
        for key in part["path"][:-1]:
            place = place.setdefault(key, {})
        numbers = action[..., at : at + size].reshape((*action.shape[:-1], *part["shape"]))
        place[part["path"][-1]] = numbers.astype(part["dtype"])[()]
        at += size
    return _with_tuples(found)


def _with_tuples(parts: Any) -> Any:
    if not isinstance(parts, dict):
        return parts
    made = {key: _with_tuples(part) for key, part in parts.items()}
    return tuple(made.values()) if all(isinstance(key, int) for key in made) else made


def dtype_of(described: Any) -> str:
    """The type of an input or output of a session, by its name in NumPy."""
    name = described.type.removeprefix("tensor(").removesuffix(")")
    return "float32" if name == "float" else name
