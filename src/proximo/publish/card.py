"""The card of a published policy: a ``README.md`` with its results, and how to use it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
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
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return template.format(
        config=config,
        evaluation=evaluation,
        code=code,
        video=VIDEO if clip else "",
        greedy=_row("greedy", evaluation["greedy"]),
        sampled=_row("sampled", evaluation["sampled"]),
        levels=levels,
        settings=settings,
        notes=notes,
        pull=command("proximo", "pull", place),
        place=place,
        total_steps=2 * config.ppo.total_steps,
        changed=dump_yaml({name: changed for name, changed in groups.items() if changed}),
    )


def _row(actions: str, found: Mapping[str, Any]) -> str:
    success = "–" if found["success_rate"] is None else f"{found['success_rate']:.1%}"
    low, high = found["ci95"]
    return (
        f"| {actions} | {found['return_mean']:,.2f} ± {found['return_std']:,.2f} | {low:,.2f} … {high:,.2f} "
        f"| {found['return_iqm']:,.2f} | {found['length_mean']:,.1f} | {success} |"
    )
