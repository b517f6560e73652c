"""Every check finds the fault that it is for, says it with its fix, and lets a sound environment pass."""

import importlib.metadata
import re

import pytest

import proximo.checks.in_jax as in_jax
import proximo.checks.plain as plain
import proximo.checks.vectorised as vectorised
import proximo.envs.host.environment as environment
from proximo.checks import check_environment, verdict, worst
from proximo.envs import Preprocessing, make_env


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """No test waits for the ends of what never ends. The import hook of the tests wraps functions in weak references, which cannot
    be sent anywhere: ``tests/cli/test_check.py`` looks without it."""
    monkeypatch.setattr(plain.cloudpickle, "dumps", lambda made: b"")
    monkeypatch.setattr(plain, "MOST_STEPS", 500)
    monkeypatch.setattr(in_jax, "MOST_CALLS", 2)
    monkeypatch.setattr(environment, "TRIAL_SECONDS", 0.01)
    monkeypatch.setattr(vectorised, "SPEED_SECONDS", 0.01)
    monkeypatch.setattr(in_jax, "SPEED_ENVS", 8)


def findings(name, **preprocessing):
    env_id = name if ":" in name or "-v" in name else f"broken_envs:{name}"
    return check_environment(make_env(env_id, {}, Preprocessing(**preprocessing)), env_id, 4)


def told(found, level):
    return [f"{f.check}: {f.says}" for f in found if f.level == level]


# Gymnasium's own checker warns from 1.4 on of observations that share an array.
NEW_CHECKER = tuple(map(int, importlib.metadata.version("gymnasium").split(".")[:2])) >= (1, 4)
SOUND = [
    "CartPole-v1", "Pendulum-v1", "gymnax:CartPole-v1", "proximo:PocMemory", "toys:ContinuousRandomEnds", "JaxMasked",
    "JaxMaskedToTheEnd", "Walk", "Wide", "Masked", "MaskedToTheEnd",
    "Reused", "factory", "Vector", "SameStep", "Disabled", "MaskedDisabled",
]  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_environment_gives_no_warning_and_no_error(name):
    found = findings(name)
    if name == "Reused" and NEW_CHECKER:
        found = [f for f in found if f.check != "Gymnasium"]
    assert [f for f in found if f.level != "ok"] == []
    assert worst(found) == "ok"
    assert "nothing was found against it" in verdict(name, found)
    assert len({f.check for f in found}) == len(found)


ERRORS = {
    "WrongShape": r"observations: .*step \(row 1 of a random play\) returned observation of shape \(1, 2\): .*expected \(2,\)\. Return what the space says",
    "NanObservation": r"observations: .* with NaN or infinity",
    "RewardWithAxis": r"rewards: .*returned the reward array\(\[.\.\]\): expected a single number\. Return float\(reward\)",
    "NanReward": r"rewards: .*returned the reward nan: expected a finite number",
    "TerminatedAsInt": r"flags: .*returned terminated = 0: expected True or False\. Return bool\(terminated\), bool\(truncated\)",
    "NoInfo": r"info: .*returned NoneType as info: expected a dict\. Return \{\}",
    "FourValues": r"steps: .*step returned 4 values: expected \(observation, reward, terminated, truncated, info\)",
    "Raises": r"steps: .*step raised IndexError: list index out of range \(broken_envs.py, line \d+\)",
    "Shared": r"side by side: .*beside others in the same process than alone.*Keep all state in self",
    "NothingAllowed": r"action mask: .*allowed no action in \d+ of \d+ rows: expected at least one",
    "MaskTooLong": r"action mask: The action mask has 3 entries: expected 2, one for each choice of Discrete\(2\)",
    "VectorShape": r"steps: .*returned reward of shape \(3, 1\): expected \(3,\)",
    "OneSeed": r"vectorised seeding: Environments 0 and 1 gave the same 200 steps.*a generator of its own",
    "Early": r"vectorised autoreset: .*declares NextStep, but it tells a final observation in its info, as same-step",
    "EarlyInSilence": r"vectorised autoreset: .*declares NextStep, but (the row behind an episode's end has the reward 1|acts by)",
    "LateButSameStep": r'declares SameStep, but an episode ended without info\["final_obs"\]',
    "FinalIsObservation": r"vectorised autoreset: .*expected that of a fresh episode. Mend it, or declare what it does in metadata",
    "ResetsAll": r'vectorised autoreset: .*reset\(options=\{"reset_mask": ...\}\) changed environments that the mask leaves out',
    "JaxBranch": r"tracing: .*step raised TracerBoolConversionError.*no Python may branch on an array: use jnp.where",
    "JaxNumpyNoise": r"side effects: The same key gives another result the second time.*Draw from the key with jax.random",
    "JaxKeeps": r"side effects: .*changes self.count in reset or step.*Keep it in the state",
    "JaxFrozen": r"jit: .*gives other results under jit than without",
    "JaxCallback": r"vmap: .*gives other results under vmap than one by one: look for a callback",
    "JaxNan": r"numbers: .*step gave the reward nan in random step \d+: expected a finite number. Look for a division",
    "JaxNothingAllowed": r"action mask: The action mask allowed no action in \d+ of \d+ rows",
    "odd_envs:WrongShape": r"tracing: .*reset returns an observation of shape \(4,\): its observation space is Box\(3,\)",
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_fault_is_an_error_that_says_what_was_seen_and_the_fix(name):
    found = findings(name)
    assert worst(found) == "error"
    assert "cannot be trained as it is: " in verdict(name, found)
    sentence = told(found, "error")[0]  # where a pool meets the same fault, it says so too
    assert_matches(ERRORS[name], sentence)


WARNINGS = {
    "SeedIgnored": r"seeding: Two instances with the same seed and the same actions differ from row 0 on.*self.np_random",
    "Outlives": r"seeding: A second reset with the same seed gives other rows from row \d+ on.*Set all of the state anew in reset",
    "Fixed": r"seeds differ: Seeds 0 and 1 give the same 1\d\d rows: either nothing is random here",
    "OutOfRange": r"range: observation lay outside of the bounds of its Box\(2,\) float32 in \d+ of \d+ rows.*widen the bounds",
    "Endless": r"episodes: No episode ended within 500 random steps, and no limit is known.*Set --max-episode-steps 1000",
    "LimitAsTermination": r"time limit: All 12 episodes terminated after exactly 25 steps.*return terminated = False, truncated = True",
    "OldLimit": r'time limit: info\["TimeLimit.truncated"\] is True, but truncated is False',
    "VectorSeedIgnored": r"vectorised seeding: The same seed and the same actions gave other steps",
    "JaxKeyIgnored": r"keys: Six keys give the same first 3 steps.*Draw from it with jax.random",
    # A slow machine is out of time before the last of the 4,800.
    "JaxEndless": r"episodes: No episode ended within [\d,]+ random steps",
}


@pytest.mark.parametrize("name", WARNINGS)
def test_what_is_probably_not_meant_is_a_warning(name):
    found = findings(name)
    assert worst(found) == "warning"
    ours = [sentence for sentence in told(found, "warning") if not sentence.startswith("Gymnasium: ")]
    (sentence,) = ours
    assert_matches(WARNINGS[name], sentence)


def assert_matches(pattern, sentence):
    assert re.search(pattern, sentence), sentence


def test_gymnasiums_own_checker_speaks_too():
    (sentence,) = [s for s in told(findings("SeedIgnored"), "warning") if s.startswith("Gymnasium")]
    assert_matches(r"Its own checker stops with: .*Training asks for what the other lines say only", sentence)
    sentences = [s for s in told(findings("OutOfRange"), "warning") if s.startswith("Gymnasium")]
    assert_matches(
        r"Its own checker warns: The obs returned by the `step\(\)` method is not within the observation space", sentences[0]
    )


def test_a_limit_that_training_sets_answers_for_what_never_ends():
    assert told(findings("Endless", max_episode_steps=50), "warning") == []
    env = make_env("broken_envs:JaxEndless")
    assert told(check_environment(env, "endless", limit=50), "warning") == []


def test_what_makes_an_environment_and_cannot_be_sent_to_workers_is_a_warning(monkeypatch):
    def fail(made):
        raise TypeError("cannot pickle '_thread.lock' object")

    monkeypatch.setattr(plain.cloudpickle, "dumps", fail)
    found = plain.sendable(make_env("broken_envs:Walk"))
    assert found.level == "warning"
    assert_matches(
        r"cannot be sent to worker processes \(TypeError: cannot pickle '_thread.lock' object\): train with --num-workers 0",
        found.says,
    )
