"""The card of a published policy: a ``README.md`` with its results, and how to use it."""

from collections.abc import Mapping, Sequence
from typing import Any

from proximo.config import Config, custom_settings, to_mapping
from proximo.config.custom import is_name
from proximo.envs.registry import names_code
from proximo.errors import command
from proximo.serialization import dump_yaml

# The video is a complete element, so that a page without video support shows only the link text.
VIDEO = '<video src="replay.mp4" controls autoplay loop muted width="480">replay.mp4</video>\n\n'


def code_of(config: Config) -> dict[str, str]:
    """The settings that are code, or name modules to import, with their values."""
    named = {"environment": config.env.id, "eval_env": config.run.eval_env, "wrappers": ", ".join(config.env.wrappers)}
    named = {name: value for name, value in named.items() if value and (name == "wrappers" or names_code(value))}
    return named | {name: str(value) for name, value in custom_settings(config).items()}


def render(config: Config, evaluation: Mapping[str, Any], place: str, clip: bool, warnings: Sequence[str]) -> str:
    """The card in Markdown. ``place`` is the argument for `proximo pull`; with a ``clip`` the card has a video."""
    code = ""
    for name, value in code_of(config).items():
        if is_name(value):
            code += f" The {name} `{value}` is code that this folder does not contain: it must be on Python's path."
        else:
            code += f" The {name} was an object: pass it when loading, as in `proximo.load_policy(run, {name}=…)`."
    levels = f", levels {evaluation['levels']}" if evaluation["levels"] else ""
    settings = "".join(f", `{key}={value}`" for key, value in evaluation["env_settings"].items())
    notes = "".join(f"\n\nNote: {warning}" for warning in warnings)
    ours, defaults = to_mapping(config), to_mapping(Config())
    groups = {name: {k: v for k, v in ours[name].items() if v != defaults[name][k]} for name in ("env", "ppo", "network")}
    return f"""# PPO on {config.env.id}

A policy (memory: `{config.network.memory}`) for `{config.env.id}`, trained by Proximal Policy Optimization for {evaluation["step"]:,} \
environment steps with proximo (seed {config.run.seed}).{code}

{VIDEO if clip else ""}## Results

| actions | return | 95 % interval of the mean | interquartile mean | length | success rate |
|---|---|---|---|---|---|
{_row("greedy", evaluation["greedy"])}
{_row("sampled", evaluation["sampled"])}

{evaluation["greedy"]["episodes"]} complete episodes each, environment seed {evaluation["seed"]}, which training does not use{levels}\
{settings}. Returns are mean ± standard deviation; the interval is a bootstrap over episodes.{notes}

## Use

    {command("proximo", "pull", place)}          # saves it in runs/ and prints its path, RUN below
    proximo watch RUN
    proximo eval RUN
    proximo train --resume RUN --total-steps {2 * config.ppo.total_steps}

```python
import proximo
from proximo.publish import pull

policy = proximo.load_policy(pull("{place}"))
memory = policy.init_memory()
# action, memory = policy.predict(observation, memory, episode_start=True)   # False after the first step of an episode
```

## Training

These settings differ from proximo's defaults (`config.yaml` has all settings, `metrics.jsonl` the learning curves, `system.json` the versions):

```yaml
{dump_yaml({name: changed for name, changed in groups.items() if changed})}```
"""


def _row(actions: str, found: Mapping[str, Any]) -> str:
    success = "–" if found["success_rate"] is None else f"{found['success_rate']:.1%}"
    low, high = found["ci95"]
    return (
        f"| {actions} | {found['return_mean']:,.2f} ± {found['return_std']:,.2f} | {low:,.2f} … {high:,.2f} "
        f"| {found['return_iqm']:,.2f} | {found['length_mean']:,.1f} | {success} |"
    )
