"""The card of a published policy: a ``README.md`` with its results, how to use it, and metadata for the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from proximo.config import Config, custom_settings, to_mapping
from proximo.config.custom import is_custom, is_name
from proximo.envs.registry import names_code
from proximo.errors import command
from proximo.serialization import dump_yaml

GROUPS = ("env", "ppo", "network")


class CardContext(NamedTuple):
    """What the card depends on besides the run."""

    place: str | None
    """The argument for `proximo pull`; None for a folder."""
    clip: bool
    warnings: tuple[str, ...] = ()


def render(config: Config, evaluation: Mapping[str, Any], system: Mapping[str, Any], context: CardContext) -> str:
    """Render the card as Markdown. ``evaluation`` is the content of ``evaluation.json``."""
    title = f"PPO on {config.env.id}"
    # A complete element, so that a page without video support shows only the link text.
    video = '<video src="replay.mp4" controls autoplay loop muted width="480">replay.mp4</video>\n\n' if context.clip else ""
    return (
        f"---\n{_front_matter(config, evaluation)}---\n\n# {title}\n\n{_introduction(config, evaluation)}\n\n{video}"
        f"## Results\n\n{_results(evaluation, context.warnings)}\n\n## Use\n\n{_use(config, context.place)}\n\n## Training\n\n{_training(config, system)}\n"
    )


def _front_matter(config: Config, evaluation: Mapping[str, Any]) -> str:
    """Metadata of the Hub's model cards: tags, and the mean return in the form that its leaderboards read."""
    env, figures = config.env.id, evaluation["greedy"]
    metric = {
        "type": "mean_reward",
        "name": "mean_reward",
        "value": f"{figures['return_mean']:.2f} +/- {figures['return_std']:.2f}",
        "verified": False,
    }
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    result = {"task": task, "dataset": {"name": env, "type": env}, "metrics": [metric]}
    ours = [] if is_custom(config.network.memory) else [config.network.memory]
    memory = ["recurrent", *ours] if config.network.remembers else []
    return dump_yaml(
        {
            "library_name": "proximo",
            "pipeline_tag": "reinforcement-learning",
            "tags": ["reinforcement-learning", "deep-reinforcement-learning", "ppo", "proximo", "jax", *memory, env],
            "model-index": [{"name": f"ppo-{env}", "results": [result]}],
        },
    )


def code_of(config: Config) -> dict[str, str]:
    """The settings that are code, or name modules to import, with their values."""
    named = {"environment": config.env.id, "eval_env": config.run.eval_env, "wrappers": ", ".join(config.env.wrappers)}
    named = {name: value for name, value in named.items() if value and (name == "wrappers" or names_code(value))}
    return named | {name: str(value) for name, value in custom_settings(config).items()}


def _introduction(config: Config, evaluation: Mapping[str, Any]) -> str:
    what = config.network.memory if config.network.memory != "none" else config.network.actor_critic
    memory = f"with memory (`{what}`)" if config.network.remembers else "without memory"
    named = {name: value for name, value in code_of(config).items() if is_name(value)}
    notes = "".join(
        f" The {name} `{value}` is code that this folder does not contain: it must be on Python's path."
        for name, value in named.items()
    )
    lost = [name for name, value in code_of(config).items() if not is_name(value)]
    notes += "".join(
        f" The {name} was an object without a name: pass it when loading, as in `proximo.load_policy(run, {name}=…)`."
        for name in lost
    )
    return (
        f"A policy {memory} for `{config.env.id}`, trained by Proximal Policy Optimization for {evaluation['step']:,} environment steps with "
        f"proximo (seed {config.run.seed}).{notes}"
    )


def _results(evaluation: Mapping[str, Any], warnings: tuple[str, ...]) -> str:
    head = (
        "| actions | return | 95 % interval of the mean | interquartile mean | length | success rate |\n|---|---|---|---|---|---|"
    )
    rows = []
    for how in ("greedy", "sampled"):
        s = evaluation[how]
        success = "–" if s["success_rate"] is None else f"{s['success_rate']:.1%}"
        rows.append(
            f"| {how} | {s['return_mean']:,.2f} ± {s['return_std']:,.2f} | {s['ci95'][0]:,.2f} … {s['ci95'][1]:,.2f} "
            f"| {s['return_iqm']:,.2f} | {s['length_mean']:,.1f} | {success} |"
        )
    played = [
        f"{evaluation['greedy']['episodes']} complete episodes each",
        f"environment seed {evaluation['seed']}, which training does not use",
    ]
    played += [f"levels {evaluation['levels']}"] if evaluation["levels"] else []
    played += [f"`{key}={value}`" for key, value in evaluation["env_settings"].items()]
    notes = "".join(f"\n\nNote: {warning}" for warning in warnings)
    table = "\n".join([head, *rows])
    return f"{table}\n\n{', '.join(played)}. Returns are mean ± standard deviation; the interval is a bootstrap over episodes.{notes}"


def _use(config: Config, place: str | None) -> str:
    place = place or "path/to/this/folder"
    return f"""    {command("proximo", "pull", place)}          # saves it in runs/ and prints its path, RUN below
    proximo watch RUN
    proximo eval RUN
    proximo export RUN            # files for ONNX Runtime
    proximo train --resume RUN --total-steps {2 * config.ppo.total_steps}

```python
import proximo
from proximo.publish import pull

policy = proximo.load_policy(pull("{place}"))
memory = policy.init_memory()
# action, memory = policy.predict(observation, memory, episode_start=True)   # False after the first step of an episode
```"""


def _training(config: Config, system: Mapping[str, Any]) -> str:
    versions = system.get("versions")
    found = {name: (versions if isinstance(versions, dict) else {}).get(name) for name in ("proximo", "jax", "gymnasium")}
    names = [f"{name} {version}" for name, version in found.items() if version not in (None, "not installed")]
    machine = system.get("device_kind") or "an unknown device"
    settings = dump_yaml(_changed(config))
    return (
        f"Trained on {machine} with {', '.join(names) or 'unrecorded versions'}. These settings differ from proximo's defaults (`config.yaml` "
        f"has all settings, `metrics.jsonl` the learning curves):\n\n```yaml\n{settings}```"
    )


def _changed(config: Config) -> dict[str, Any]:
    """The settings of the training that differ from the defaults."""
    ours, defaults = to_mapping(config), to_mapping(Config())
    changed = {group: {k: v for k, v in ours[group].items() if v != defaults[group][k]} for group in GROUPS}
    return {group: settings for group, settings in changed.items() if settings}
