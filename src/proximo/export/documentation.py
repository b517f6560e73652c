"""Documentation of an export: the meanings of its inputs and outputs, and a README with runnable code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proximo.export.policy_function import NEXT, REWARD, PolicyFunction
from proximo.export.runtime import dtype_of
from proximo.spaces import ACTION_MASK

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


def described(leaves: Sequence[Any], function: PolicyFunction) -> list[dict[str, Any]]:
    """Name, shape, type and meaning of the inputs or outputs of a session."""
    meanings = {**MEANINGS, "noise": f"standard {function.noise_family} noise: {MEANINGS['noise']}"}
    if not function.actor_critic.reset_memory:
        meanings["episode_start"] = "ignored: the policy keeps its memory, last action and last reward across episodes"

    def meaning(name: str) -> str:
        known = meanings.get(name.split(".")[0], "a parameter of the distribution")
        return f"{name.removesuffix(NEXT)} of the next step" if name.endswith(NEXT) else known

    return [{"name": x.name, "shape": x.shape, "dtype": dtype_of(x), "meaning": meaning(x.name)} for x in leaves]


def readme(metadata: Mapping[str, Any], function: PolicyFunction) -> str:
    """The README of an export."""
    inputs = function.inputs(1)
    given = ", action_mask=action_mask" * (ACTION_MASK in inputs) + ", reward=reward" * (REWARD in inputs)
    sample = "" if function.deterministic else ", deterministic=False, key=rng"
    numpy, rng = ("import numpy as np\n\n", "rng = np.random.default_rng(0)\n") if sample else ("", "")
    stochastic = "" if function.noise_family is None else ", or export with `proximo export --stochastic`"
    return f"""\
# Policy for {metadata["environment"]}

Trained by proximo {metadata["versions"]["proximo"]}: run {metadata["run"] or "unknown"}, step {metadata["step"]:,}.

- Observation: {metadata["observation_space"]}
- Action: {metadata["action_space"]}
- Actions are {metadata["actions"]}.

The largest error against JAX over {metadata["parity"]["steps"]} steps was {metadata["parity"]["largest_error"]:.1e}.

`proximo_policy.py` needs NumPy and ONNX Runtime (`pip install onnxruntime`). It acts on one observation, or on N of them stacked.

```python
{numpy}from proximo_policy import ExportedPolicy

policy = ExportedPolicy()
{rng}memory = policy.init_memory({"" if metadata["environments"] == "N" else metadata["environments"]})
# the observation is what the environment's reset returned, then what its step returned
action, memory = policy.predict(observation, memory, episode_start=True{given}{sample})
action, memory = policy.predict(observation, memory{given}{sample})  # the episode continues
```

In other languages, pass the inputs that `metadata.json` lists to `policy.onnx`, and an output `NAME.next` as the input `NAME` of the next step.

- Pass observations as the environment returns them. The policy normalizes them, and maps its actions to the action space.
- To sample an action, draw from the distribution with the parameters in the outputs{stochastic}.
"""
