"""Documentation of an export: the meanings of its inputs and outputs, and a README with runnable code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax

from proximo.export.policy_function import NEXT, REWARD, PolicyFunction
from proximo.spaces import ACTION_MASK, OBSERVATION, zeros

MEANINGS = {
    "observation": "as the environment returns it, before normalization",
    "action_mask": "which actions are allowed: 1, or 0 for those that are not; at least one must be",
    "episode_start": "whether an episode begins, where the memory is reset",
    "reward": "the reward of the last action; 0 before the first action",
    "memory": "the memory before this step; an output of the last step",
    "noise": "new noise for each step, or zeros for the most probable action",
    "action": "as the environment takes it: clipped or squashed, scaled, with the start of a Discrete space added",
    "value": "the value of the observation, in units of the scaled reward",
    "log_prob": "log-probability (density) of the action as it was sampled, before it was mapped to the space",
    "logits": "of each choice, or of each bit being 1; ±1e9 for what is not allowed",
    "mean": "of the Gaussian, before it is mapped to the space",
    "log_std": "logarithm of the Gaussian's standard deviation",
    "alpha": "of the Beta distribution on 0 … 1, before it is scaled to the space",
    "beta": "of the Beta distribution on 0 … 1, before it is scaled to the space",
}


def meaning(name: str, policy_function: PolicyFunction) -> str:
    """One line about an input or an output."""
    if name.endswith(NEXT):
        return f"{name.removesuffix(NEXT)} of the next step"
    text = MEANINGS.get(name.split(".")[0], "a parameter of the distribution")
    if name == "noise":
        return f"standard {policy_function.noise_family} noise: {text}"
    if name == "episode_start" and not policy_function.actor_critic.reset_memory:
        return "ignored: the policy keeps its memory, last action and last reward across episodes"
    return text


def readme(metadata: Mapping[str, Any], policy_function: PolicyFunction) -> str:
    """The README of an export."""
    tables = [
        f"| {side[:-1].capitalize()} | Shape | Type | Meaning |\n|---|---|---|---|\n"
        + "".join(f"| `{x['name']}` | {x['shape']} | {x['dtype']} | {x['meaning']} |\n" for x in metadata[side])
        for side in ("inputs", "outputs")
    ]
    stochastic = "" if policy_function.noise_family is None else ", or export with `proximo export --stochastic`"
    return f"""\
# Policy for {metadata["environment"]}

Trained by proximo {metadata["versions"]["proximo"]}: run {metadata["run"] or "unknown"}, step {metadata["step"]:,}.

- Observation: {metadata["observation_space"]}
- Action: {metadata["action_space"]}
- Actions are {metadata["actions"]}.

The largest error against JAX over {metadata["parity"]["steps"]} steps was {metadata["parity"]["largest_error"]:.1e}.

## In Python

`proximo_policy.py` needs NumPy and ONNX Runtime (`pip install onnxruntime`).

```python
{_code(policy_function, metadata["environments"])}```

## In other languages

ONNX Runtime takes and returns arrays by name. The first axis of each is the {metadata["environments"]} environments.

{tables[0]}
{tables[1]}
- Pass observations as the environment returns them. The policy normalizes them, and maps its actions to the action space.
- Pass an output `NAME.next` as the input `NAME` of the next step.
- To sample an action, draw from the distribution with the parameters in the outputs{stochastic}.
"""


def _code(policy_function: PolicyFunction, environments: int | str) -> str:
    """Python code that acts for two steps."""
    shape = () if environments == "N" else (int(environments),)
    observation = jax.tree.map(lambda x: f"np.zeros({x.shape}, np.{x.dtype})", zeros(policy_function.space, shape))
    mask = ""
    if policy_function.actor_critic.mask_ndim is not None:
        mask = f", action_mask={observation.pop(ACTION_MASK).replace('zeros', 'ones')}"
        observation = observation[OBSERVATION] if list(observation) == [OBSERVATION] else observation
    reward = ", reward=0.0" if REWARD in policy_function.inputs(1) else ""
    sample = "" if policy_function.deterministic else ", deterministic=False, key=rng"
    code = f"""\
import numpy as np

from proximo_policy import ExportedPolicy

policy, rng = ExportedPolicy(), np.random.default_rng(0)
observation = {observation}  # as the environment returns it{"" if shape else ", or N of them stacked"}
memory = policy.init_memory({"".join(map(str, shape))})
action, memory = policy.predict(observation, memory, episode_start=True{mask}{reward}{sample})
action, memory = policy.predict(observation, memory{mask}{reward}{sample})  # the episode continues
print(action)
"""
    return re.sub(r"'(np\.zeros.*?)'", r"\1", code).replace("np.bool", "bool")
