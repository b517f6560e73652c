"""Documentation of an export: the meanings of its inputs and outputs, and a README with runnable code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from proximo.export.policy_function import (
    ACTION,
    EPISODE_START,
    LOG_PROB,
    MEMORY,
    NEXT,
    NOISE,
    PREVIOUS_ACTION_MEMORY,
    REWARD,
    VALUE,
    PolicyFunction,
)
from proximo.spaces import ACTION_MASK, OBSERVATION, Discrete, MultiBinary, from_any


def input_meaning(name: str, policy_function: PolicyFunction) -> str:
    """One line about an input."""
    root = name.split(".")[0]
    if name == PREVIOUS_ACTION_MEMORY:
        return "the last action; an output of the last step"
    if root == NOISE:
        return f"standard {policy_function.noise_family()} noise; zeros for the most probable action"
    resets = policy_function.policy.config.network.reset_memory
    ignored = "; ignored, because the memory is kept across episodes"
    read_at_start = "; at the start of an episode, the last reward of the previous episode; 0 before the first action"
    return {
        OBSERVATION: "as the environment returns it, before normalization",
        ACTION_MASK: "which actions are allowed: 1, or 0 for those that are not; at least one must be",
        EPISODE_START: "whether an episode begins with this observation" + ("" if resets else ignored),
        REWARD: "the reward of the last action" + ("; ignored at the start of an episode" if resets else read_at_start),
        MEMORY: "the memory before this step; an output of the last step",
    }[root]


def output_meaning(name: str, policy_function: PolicyFunction) -> str:
    """One line about an output."""
    if name.endswith(NEXT):
        return f"{name.removesuffix(NEXT)} of the next step"
    mapping = policy_function.policy.config.network.action_mapping
    bits = isinstance(from_any(policy_function.policy.env.action_space, "action"), MultiBinary)
    logits = "of each choice; -1e9 for actions that are not allowed, and for choices that a component lacks"
    return {
        ACTION: "as the environment takes it: clipped or squashed, scaled, with the start of a Discrete space added",
        VALUE: "the value of the observation, in units of the scaled reward",
        LOG_PROB: "log-probability (density) of the action as it was sampled, before it was mapped to the space",
        "logits": "of each bit being 1" if bits else logits,
        "mean": f"of the Gaussian, before it is mapped to the space ({mapping})",
        "log_std": "logarithm of the Gaussian's standard deviation",
        "alpha": "of the Beta distribution on 0 … 1, before it is scaled to the space",
        "beta": "of the Beta distribution on 0 … 1, before it is scaled to the space",
    }.get(name, "a parameter of the distribution")


def _ones(mask: Any) -> str:
    """Python code that makes an action mask that allows everything."""
    return _code(mask).replace("np.zeros", "np.ones")


def _code(observation: Any) -> str:
    """Python code that makes ``observation``."""
    if isinstance(observation, dict):
        return "{" + ", ".join(f"{name!r}: {_code(part)}" for name, part in observation.items()) + "}"
    if isinstance(observation, tuple):
        return "(" + "".join(f"{_code(part)}, " for part in observation) + ")"
    x = np.asarray(observation)
    dtype = f"np.{x.dtype.name.replace('bool', 'bool_')}"
    return f"np.array({x.tolist()}, {dtype})" if x.any() else f"np.zeros({x.shape}, {dtype})"


def readme(metadata: Mapping[str, Any], policy_function: PolicyFunction, files: Sequence[str]) -> str:
    """The README of an export with these files."""
    batch = None if metadata["environments"] == "N" else metadata["environments"]
    parity = metadata["parity"]
    errors = ", ".join(f"{name} {error:.1e}" for name, error in parity["largest_error"].items())
    parts = [
        f"# Policy for {metadata['environment']}\n\n"
        f"Trained by proximo {metadata['versions']['proximo']}: run {metadata['run'] or 'unknown'}, step {metadata['step']:,}.\n\n"
        f"- Observation: {metadata['observation_space']}\n"
        f"- Action: {metadata['action_space']}\n"
        f"- Actions are {metadata['actions']}.\n\n"
        f"`metadata.json` lists all inputs and outputs. The largest error against JAX over {parity['steps']} steps was: {errors}."
    ]
    if "policy.npz" in files:
        parts.append("## With NumPy\n\n```python\n" + _numpy_code(policy_function, batch) + "```")
    if "policy.onnx" in files:
        parts.append("## With ONNX Runtime\n\n```python\n" + _onnx_code(metadata, policy_function, batch or 1) + "```")
    parts.append(_notes(metadata, policy_function))
    return "\n\n".join(parts) + "\n"


def _numpy_code(policy_function: PolicyFunction, batch: int | None) -> str:
    observation = policy_function.observation(batch or 1)
    comment = f"{batch} observations" if batch else "one observation, or N stacked ones"
    shown = observation if batch else jax.tree.map(lambda x: x[0], observation)
    mask = ""
    if policy_function.actor_critic.mask_ndim is not None:
        mask = f"action_mask = {_ones(shown.pop(ACTION_MASK))}  # 1: the action is allowed\n"
        shown = shown[OBSERVATION] if list(shown) == [OBSERVATION] else shown
    masks = ", action_mask=action_mask" if mask else ""
    starts, reward = (f"[True] * {batch}", f"[0.0] * {batch}") if batch else ("True", "0.0")
    rewards = f", reward={reward}" if REWARD in policy_function.inputs(1) else ""
    # Only a policy that keeps its memory reads a reward at the start of an episode.
    first_reward = "" if policy_function.actor_critic.reset_memory else rewards
    sample = "" if policy_function.deterministic else ", deterministic=False, key=rng"
    return (
        "import numpy as np\n\nfrom proximo_policy import ExportedPolicy\n\n"
        "policy = ExportedPolicy()  # reads the policy.npz beside proximo_policy.py\n"
        + ("" if policy_function.deterministic else "rng = np.random.default_rng(0)\n")
        + f"memory = policy.init_memory({batch or ''})\n"
        f"observation = {_code(shown)}  # {comment} of the environment\n"
        f"{mask}"
        f"action, memory = policy.predict(observation, memory, episode_start={starts}{masks}{first_reward}{sample})\n"
        f"action, memory = policy.predict(observation, memory{masks}{rewards}{sample})  # the episode continues\n"
        "print(action)\n"
    )


def _onnx_code(metadata: Mapping[str, Any], policy_function: PolicyFunction, count: int) -> str:
    arrays = policy_function.inputs(count) | policy_function.observation_inputs(policy_function.observation(count))
    flags = {value: f"np.array([{value}]" + (f" * {count})" if count > 1 else ")") for value in ("True", "False")}
    inputs = "".join(
        f"    {name!r}: {flags['True'] if name == EPISODE_START else _ones(x) if name == ACTION_MASK else _code(x)},\n"
        for name, x in arrays.items()
        if name not in policy_function.memory_names
    )
    memory = ", ".join(f"{name!r}: {_code(arrays[name])}" for name in policy_function.memory_names)
    initial = any(entry["initial"] != "zeros" for entry in metadata["memory"])
    return (
        "import numpy as np\nimport onnxruntime\n\n"
        'session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])\n'
        "names = [output.name for output in session.get_outputs()]\n"
        f"inputs = {{\n{inputs}}}\n"
        f"memory = {{{memory}}}"
        + ("  # replace zeros by the initial values in metadata.json\n" if initial else "\n")
        + "for step in range(2):\n"
        "    outputs = dict(zip(names, session.run(names, {**inputs, **memory})))\n"
        "    memory = {name: outputs[name + '.next'] for name in memory}\n"
        f"    inputs['episode_start'] = {flags['False']}  # until the next episode begins\n"
        "print(outputs['action'])\n"
    )


def _notes(metadata: Mapping[str, Any], policy_function: PolicyFunction) -> str:
    space = from_any(policy_function.policy.env.action_space, "action")
    if policy_function.actor_critic.reset_memory:
        memory = "`episode_start` resets the memory of the environments in which an episode begins."
    else:
        memory = "`episode_start` is ignored: the policy keeps its memory, last action and last reward across episodes, as in training."
    if not policy_function.deterministic:
        sampling = "The input `noise` samples the action. Draw new noise for each step."
    elif not policy_function.can_sample:
        others = (ACTION, VALUE, LOG_PROB)
        names = [output["name"] for output in metadata["outputs"]]
        parameters = ", ".join(f"`{name}`" for name in names if name not in others and not name.endswith(NEXT))
        sampling = (
            "`proximo export --stochastic` cannot sample from this distribution. To sample an action, draw from the distribution with "
            f"its parameters in the outputs ({parameters}), and map the draw to the action space."
        )
    elif isinstance(space, Discrete):
        start = f" and add {space.start}" if space.start else ""
        sampling = f"To sample an action, draw from the softmax of the output `logits`{start}."
    else:
        sampling = "The parameters of the distribution are outputs. `proximo export --stochastic` writes a policy that samples."
    return (
        "## Notes\n\n"
        "- Pass observations as the environment returns them. The policy normalizes them, and maps its actions to the action space.\n"
        f"- {memory} Pass the memory that a step returns to the next step.\n"
        f"- {sampling}\n"
        "- Loading these files executes no code. They contain no pickle; `proximo_policy.py` is the only program."
    )
