"""Checks what reset and step of a single Gymnasium environment return."""

from __future__ import annotations

from collections.abc import Callable

from proximo.checks.finding import Finding, run_check
from proximo.checks.random_play import Transition
from proximo.envs.gymnasium.observations import Leaf
from proximo.envs.gymnasium.transition_checks import check_observation, check_step

OBSERVATION_FIX = "Return what the space declares, or declare the space of what you return."
REWARD_FIX = "Return float(reward)."
FLAGS_FIX = "Return bool(terminated), bool(truncated)."
INFO_FIX = "Return {} if there is no information."


def check_interface(played: list[Transition], expected: list[Leaf], env_id: str) -> list[Finding]:
    """Check that every part of every transition is what Gymnasium's interface demands."""
    steps = [(n, transition) for n, transition in enumerate(played) if not transition.episode_start]

    def each(check: Callable[[Transition, str], None]) -> None:
        for number, transition in steps:
            check(transition, f"{env_id}.step (transition {number} of a random play)")

    def observations() -> str:
        for number, transition in enumerate(played):
            call = "reset" if transition.episode_start else "step"
            check_observation(transition.observation, expected, f"{env_id}.{call} (transition {number} of a random play)")
        kinds = ", ".join(f"{leaf.name} {leaf.space}".strip() for leaf in expected)
        return f"{len(played)} observations have the shape and type of their space and are finite: {kinds}."

    def rewards() -> str:
        each(lambda transition, where: check_step(transition.reward, False, False, {}, where))
        values = [float(transition.reward) for _, transition in steps]
        return f"All rewards are finite numbers, {min(values):.4g} … {max(values):.4g}."

    def flags() -> str:
        each(lambda transition, where: check_step(0.0, transition.terminated, transition.truncated, {}, where))
        return "terminated and truncated are True or False."

    def infos() -> str:
        for transition in played:
            check_step(0.0, False, False, transition.info, f"{env_id}.{'reset' if transition.episode_start else 'step'}")
        return "info is always a dict."

    return [
        run_check("observations", observations, OBSERVATION_FIX),
        run_check("rewards", rewards, REWARD_FIX),
        run_check("flags", flags, FLAGS_FIX),
        run_check("info", infos, INFO_FIX),
    ]
