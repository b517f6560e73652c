"""Checks what reset and step of a single Gymnasium environment return."""

from __future__ import annotations

from proximo.checks.finding import Finding, run_check
from proximo.checks.random_play import Transition
from proximo.envs.gymnasium.observations import Leaf
from proximo.envs.gymnasium.transition_checks import check_observation, check_step

OBSERVATION_FIX = "Return what the space declares, or declare the space of what you return."
FLAGS_FIX = "Return bool(terminated), bool(truncated)."
INFO_FIX = "Return {} if there is no information."


def check_interface(played: list[Transition], expected: list[Leaf], env_id: str) -> list[Finding]:
    """Check that every part of every transition is what Gymnasium's interface demands."""
    calls = [
        (t, f"{env_id}.{'reset' if t.episode_start else 'step'} (transition {n} of a random play)") for n, t in enumerate(played)
    ]
    steps = [(transition, where) for transition, where in calls if not transition.episode_start]

    def observations() -> str:
        for transition, where in calls:
            check_observation(transition.observation, expected, where)
        kinds = ", ".join(f"{leaf.name} {leaf.space}".strip() for leaf in expected)
        return f"{len(played)} observations have the shape and type of their space and are finite: {kinds}."

    def rewards() -> str:
        for transition, where in steps:
            check_step(transition.reward, False, False, {}, where)
        values = [float(transition.reward) for transition, _ in steps]
        return f"All rewards are finite numbers, {min(values):.4g} … {max(values):.4g}."

    def flags() -> str:
        for transition, where in steps:
            check_step(0.0, transition.terminated, transition.truncated, {}, where)
        return "terminated and truncated are True or False."

    def infos() -> str:
        for transition, where in calls:
            check_step(0.0, False, False, transition.info, where)
        return "info is always a dict."

    return [
        run_check("observations", observations, OBSERVATION_FIX),
        run_check("rewards", rewards),
        run_check("flags", flags, FLAGS_FIX),
        run_check("info", infos, INFO_FIX),
    ]
