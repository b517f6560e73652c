"""Checks whether a seed repeats an episode, and whether another seed gives another episode."""

from __future__ import annotations

from proximo.checks.finding import Finding, error, ok, warning
from proximo.checks.random_play import Streams

SEED_FIX = "Call super().reset(seed=seed) and draw only from self.np_random, not from NumPy's or Python's global generator."
NOTHING_RANDOM = "either nothing is random here, which is fine if it is intended"


def check_repeats(in_new_instance: int | None, in_same_instance: int | None, steps: int) -> Finding:
    """Check that the same seed and actions repeat a play.

    Args:
        in_new_instance: First transition that differs in another instance with the same seed; None if all are equal.
        in_same_instance: The same after a second reset of one instance.
        steps: Number of transitions compared.
    """
    if in_new_instance is not None:
        return warning(
            "seeding",
            f"Two instances with the same seed and the same actions differ from transition {in_new_instance} on, so no run can be "
            f"repeated: the environment ignores the seed, or draws some random numbers from elsewhere. {SEED_FIX}",
        )
    if in_same_instance is not None:
        return warning(
            "seeding",
            f"A second reset with the same seed differs from the first from transition {in_same_instance} on, but a new instance "
            "does not: some state survives reset. Set the whole state in reset.",
        )
    return ok("seeding", f"The same seed gives the same {steps} transitions, in the same instance and in another one.")


def check_seeds_differ(difference: int | None, steps: int) -> Finding:
    """Check that another seed gives another play. ``difference`` is the first transition that differs, None if all are equal."""
    if difference is None:
        return warning(
            "seeds differ",
            f"Seeds 0 and 1 give the same {steps} transitions: {NOTHING_RANDOM} (all environments then start alike), or reset "
            f"ignores its seed. {SEED_FIX}",
        )
    return ok("seeds differ", "A different seed gives different episodes.")


def check_vector_seeding(first: Streams, again: Streams, other: Streams) -> Finding:
    """Check the seeds of a vector environment: ``first`` and ``again`` have the same seed, ``other`` has another one."""
    if not first.equals(again):
        return warning(
            "seeding",
            "The same seed and the same actions gave different steps, so no run can be repeated: the environment ignores the seed, or "
            "draws some random numbers from elsewhere. Draw all of them from a generator that reset(seed=...) makes.",
        )
    pair = first.equal_pair()
    if pair is not None and not first.equals(other):
        return error(
            "seeding",
            f"Environments {pair[0]} and {pair[1]} gave the same {len(first.reward)} steps, but a different seed gives different steps: "
            "give each environment its own generator, with a seed that is derived from the seed of reset.",
        )
    if first.equals(other):
        return warning(
            "seeding",
            f"Seeds 0 and 1 give the same {len(first.reward)} steps: {NOTHING_RANDOM}, or reset ignores its seed.",
        )
    return ok("seeding", "The same seed gives the same steps; different seeds and different environments give different steps.")
