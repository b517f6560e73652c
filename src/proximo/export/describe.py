"""What an export says of itself to whoever finds it: meanings of inputs and outputs, and a README whose code runs as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proximo.export.acting import ACTION, FIRST, LOG_PROB, MEMORY, NEXT, NOISE, OBSERVATION, VALUE, Acting, noise_family
from proximo.spaces import PREVIOUS_ACTION, PREVIOUS_REWARD, Discrete, MultiBinary, from_any


def input_meaning(name: str, acting: Acting) -> str:
    """One line on an input."""
    root = name.split(".")[0]
    if root == NOISE:
        return f"standard {noise_family(acting.network.actor)} noise; zeros for the most probable action"
    resets = acting.policy.config.network.reset_memory
    return {
        OBSERVATION: "as the environment gives it, before normalisation",
        FIRST: "whether an episode begins with this row"
        + ("" if resets else "; ignored: memory, last action and last reward are kept across episodes"),
        PREVIOUS_REWARD: "the reward of the last action; "
        + (
            "ignored where first is true"
            if resets
            else "in the first row of an episode, the last reward of the previous episode; 0 before the first action"
        ),
        MEMORY: "the memory before this row",
        PREVIOUS_ACTION: "the last action, as the output of the row before gives it",
    }[root]


def output_meaning(name: str, acting: Acting) -> str:
    """One line on an output."""
    if name.endswith(NEXT):
        return f"{name.removesuffix(NEXT)} of the next row"
    mapping = acting.policy.config.network.action_mapping
    bits = isinstance(from_any(acting.policy.env.action_space, "action"), MultiBinary)
    return {
        ACTION: "as the environment takes it: clipped or squashed, scaled, counted from the start of the space",
        VALUE: "the value of the observation, in the units of the scaled reward",
        LOG_PROB: "the logarithm of the probability (density) of the action as it was sampled, before it was mapped to the space",
        "logits": "of each bit being 1"
        if bits
        else "of each choice; -1e9 where it is not allowed, or where a component has fewer",
        "mean": f"of the Gaussian, before it is mapped to the space ({mapping})",
        "log_std": "the logarithm of the Gaussian's standard deviation",
    }.get(name, "a parameter of the distribution")


def _zeros(template: Any) -> str:
    """Python that makes an observation of zeros."""
    if isinstance(template, dict):
        return "{" + ", ".join(f"{name!r}: {_zeros(part)}" for name, part in template.items()) + "}"
    if isinstance(template, tuple):
        return "(" + "".join(f"{_zeros(part)}, " for part in template) + ")"
    return f"np.zeros({template.shape}, np.{np.dtype(template.dtype).name.replace('bool', 'bool_')})"


def _flags(value: str, count: int) -> str:
    return f"[{value}]" if count == 1 else f"[{value}] * {count}"


def readme(metadata: Mapping[str, Any], acting: Acting, files: Sequence[str]) -> str:
    """The README of an export with these files."""
    count = 1 if metadata["environments"] == "N" else metadata["environments"]
    errors = ", ".join(f"{name} {error:.1e}" for name, error in metadata["parity"]["largest_error"].items())
    parts = [
        f"# Policy for {metadata['environment']}\n\n"
        f"Trained by proximo {metadata['versions']['proximo']}: run {metadata['run'] or 'unknown'}, step {metadata['step']:,}. "
        f"Observation: {metadata['observation_space']}; action: {metadata['action_space']}. Actions are {metadata['actions']}.\n\n"
        f"`metadata.json` names all inputs and outputs. Largest error against JAX over {metadata['parity']['steps']} steps: {errors}."
    ]
    if "policy.npz" in files:
        parts.append("## With NumPy alone\n\n```python\n" + _numpy_snippet(acting, count) + "```")
    if "policy.onnx" in files:
        parts.append("## With ONNX Runtime\n\n```python\n" + _onnx_snippet(metadata, acting, count) + "```")
    parts.append(_notes(acting))
    return "\n\n".join(parts) + "\n"


def _numpy_snippet(acting: Acting, count: int) -> str:
    reward = f", reward={_flags('0.0', count)}" if PREVIOUS_REWARD in acting.inputs(1) else ""
    noise = f", noise=policy.noise(rng, {count})" if acting.stochastic else ""
    return (
        "import numpy as np\n\nfrom proximo_policy import Policy\n\n"
        "policy = Policy()  # the policy.npz beside proximo_policy.py\n"
        + ("rng = np.random.default_rng()\n" if acting.stochastic else "")
        + f"memory = policy.init_memory({count})\n"
        f"observation = {_zeros(acting.observation(count))}  # {'the row of an environment' if count == 1 else f'{count} of the environment'}\n"
        f"memory, action = policy(memory, observation, {_flags('True', count)}{noise})  # an episode begins\n"
        f"memory, action = policy(memory, observation, {_flags('False', count)}{reward}{noise})  # and goes on\n"
        "print(action)\n"
    )


def _onnx_snippet(metadata: Mapping[str, Any], acting: Acting, count: int) -> str:
    arrays = {name: np.asarray(x) for name, x in acting.inputs(count).items()}
    begin = [entry for entry in metadata["carried"] if entry["initial"] != "zeros"]
    begins = f"np.array({_flags('True', count)})"
    row = "".join(
        f"    {name!r}: {begins if name == FIRST else _zeros(x)},\n" for name, x in arrays.items() if name not in acting.carried
    )
    carried = ", ".join(f"{name!r}: {_zeros(arrays[name])}" for name in acting.carried)
    kept = "carried = {name: outputs[name + '.next'] for name in carried}\n"
    return (
        "import numpy as np\nimport onnxruntime\n\n"
        'session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])\n'
        "names = [output.name for output in session.get_outputs()]\n"
        f"row = {{\n{row}}}\n"
        f"carried = {{{carried}}}" + ("  # begin with what metadata.json says\n" if begin else "\n") + "for step in range(2):\n"
        "    outputs = dict(zip(names, session.run(names, {**row, **carried})))\n"
        f"    {kept}"
        f"    row['first'] = np.array({_flags('False', count)})  # until the next episode begins\n"
        "print(outputs['action'])\n"
    )


def _meaning_of_first(acting: Acting) -> str:
    if acting.network.reset_memory:
        return "`first` empties the memory of the rows in which an episode begins"
    return "`first` is ignored: memory, last action and last reward are kept across episodes, as in training"


def _notes(acting: Acting) -> str:
    space = from_any(acting.policy.env.action_space, "action")
    if acting.stochastic:
        how = "The input `noise` samples the action; fresh noise in every row."
    elif isinstance(space, Discrete):
        how = "To sample an action, draw from the softmax of the output `logits`" + (
            f" and add {space.start}." if space.start else "."
        )
    else:
        how = "The distribution's parameters are outputs too; `proximo export --stochastic` samples inside."
    return (
        "## What to know\n\n"
        "- Give observations as the environment gives them: the normaliser is inside, and so is the way of the action to its space.\n"
        f"- {_meaning_of_first(acting)}; what is carried goes from each row to the next one.\n"
        f"- {how}\n"
        "- Nothing here can execute code when it is loaded: no pickle; proximo_policy.py is the only program, and short enough to read."
    )
