"""Every check finds its fault, reports it with the fix, and passes a sound environment."""

import importlib.metadata
import re

import pytest

import proximo.envs.gymnasium.environment as environment
from proximo.checks import check_environment, check_names, gymnasium_environment, jax_play, verdict, worst
from proximo.envs import Preprocessing, make_env
from proximo.errors import EnvError
from proximo.settings import make_config


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Endless episodes are played shortly. The import hook of the tests wraps functions in weak references, which cannot be pickled;
    ``tests/cli/test_check.py`` checks pickling without the hook."""
    monkeypatch.setattr(gymnasium_environment, "pickled", lambda make, env_id: b"")
    monkeypatch.setattr(gymnasium_environment, "MAX_STEPS", 500)
    monkeypatch.setattr(jax_play, "MAX_CALLS", 2)
    monkeypatch.setattr(environment, "TRIAL_SECONDS", 0.01)


def findings(name, **preprocessing):
    env_id = name if ":" in name or "-v" in name else f"broken_envs:{name}"
    config = make_config(env_id, {"num_envs": 4, "normalize_observation": False, "normalize_reward": False}, preset=False)
    return list(check_environment(make_env(env_id, {}, Preprocessing(**preprocessing)), config))


def messages(found, level):
    return [f"{f.check}: {f.message}" for f in found if f.level == level]


# Gymnasium's own checker warns from 1.4 on of observations that share an array.
NEW_CHECKER = tuple(map(int, importlib.metadata.version("gymnasium").split(".")[:2])) >= (1, 4)
SOUND = [
    "CartPole-v1", "Pendulum-v1", "gymnax:CartPole-v1", "proximo:PocMemory", "toys:ContinuousRandomEnds", "JaxMasked",
    "JaxMaskedToTheEnd", "Walk", "Wide", "Masked", "MaskedToTheEnd", "MaskedBits", "JaxMaskedBits",
    "Reused", "factory", "Vector", "SameStep", "Disabled", "MaskedDisabled", "Crash", "Penalty", "VectorPenalty", "JaxPenalty",
]  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_sound_environment_has_only_ok_findings(name):
    found = findings(name)
    if name == "Reused" and NEW_CHECKER:
        found = [f for f in found if f.check != "Gymnasium"]
    assert [f for f in found if f.level != "ok"] == []
    assert worst(found) == "ok"
    assert "no problem was found" in verdict(name, found)
    assert len({f.check for f in found}) == len(found)
    assert {f.check for f in found} >= set(check_names(make_env(name if ":" in name or "-v" in name else f"broken_envs:{name}")))


ERRORS = {
    "WrongShape": r"observations: .*step \(transition 1 of a random play\) returned observation of shape \(1, 2\): .*expected \(2,\)\. Return what the space declares",
    "NanObservation": r"observations: .* with NaN or infinity",
    "RewardWithAxis": r"rewards: .*returned the reward array\(\[.\.\]\): expected a single number\. Return float\(reward\)",
    "SeveralRewards": r"expected a single number\. Combine its parts, for example in a weighted sum\.$",
    "NanReward": r"rewards: .*returned the reward nan: expected a finite number \(as float32\)\.$",
    "TerminatedAsInt": r"flags: .*returned terminated = 0: expected True or False\. Return bool\(terminated\), bool\(truncated\)",
    "NoInfo": r"info: .*returned NoneType as info: expected a dict\. Return \{\}",
    "FourValues": r"steps: .*step returned 4 values: expected \(observation, reward, terminated, truncated, info\)",
    "Raises": r"steps: .*step raised IndexError: list index out of range \(broken_envs.py, line \d+\)",
    "Silent": r"side by side: .*step .*raised AssertionError \(broken_envs.py, line \d+\)",
    "Shared": r"side by side: .*gives different steps if other environments run in the same process.*Keep all state in self",
    "NothingAllowed": r"action mask: .*allowed no action in \d+ of \d+ observations: expected at least one",
    "MaskTooLong": r"action mask: The action mask has 3 entries: expected 2, one for each choice of Discrete\(2\)",
    "VectorRaisesLate": r"steps: .*step raised RuntimeError: too late \(broken_envs.py, line \d+\)",
    "VectorShape": r"steps: .*returned reward of shape \(3, 1\): expected \(3,\)",
    "OneSeed": r"vectorized seeding: Environments 0 and 1 gave the same 200 steps.*its own generator",
    "Early": r"vectorized autoreset: .*declares NextStep, but its info has a final observation, as in same-step",
    "EarlyInSilence": r"vectorized autoreset: .*declares NextStep, but the step after an episode's end(, which must only reset, uses its action| has the reward 1)",
    "LateButSameStep": r'declares SameStep, but an episode ended without info\["final_obs"\]',
    "FinalIsObservation": r"vectorized autoreset: .*expected the first one of the next episode. Fix this, or declare the mode that it uses in metadata",
    "ResetsAll": r'vectorized autoreset: .*reset\(options=\{"reset_mask": ...\}\) changed environments that the mask does not select',
    "JaxBranch": r"tracing: .*step raised TracerBoolConversionError.*Python cannot branch on an array: use jnp.where",
    "JaxNumpyNoise": r"side effects: The same key gives a different result the second time.*Draw from the key with jax.random",
    "JaxKeeps": r"side effects: .*changes self.count in reset or step.*Keep it in the state",
    "JaxFrozen": r"jit: .*gives different results with and without jit",
    "JaxCallback": r"vmap: .*gives different results under vmap and one by one: look for a callback",
    "JaxNan": r"numbers: .*step gave the reward nan in random step \d+: expected a finite number. Look for a division",
    "JaxNothingAllowed": r"action mask: The action mask allowed no action in \d+ of \d+ observations",
    "odd_envs:WrongShape": r"tracing: .*reset returns an observation of shape \(4,\): its observation space is Box\(3,\)",
}


@pytest.mark.parametrize("name", ERRORS)
def test_fault_is_an_error_with_its_fix(name):
    found = findings(name)
    assert worst(found) == "error"
    assert "cannot be trained as it is: " in verdict(name, found)
    sentence = messages(found, "error")[0]  # the vector check may report the same fault
    assert_matches(ERRORS[name], sentence)


WARNINGS = {
    "SeedIgnored": r"seeding: Two instances with the same seed and the same actions differ from transition 0 on.*self.np_random",
    "Outlives": r"seeding: A second reset with the same seed differs from the first from transition \d+ on.*Set the whole state in reset",
    "Fixed": r"seeds differ: Seeds 0 and 1 give the same 1\d\d transitions: either nothing is random here",
    "OutOfRange": r"range: \d+ of \d+ observations are outside the bounds of Box\(2,\) float32.*widen the bounds",
    "Endless": r"episodes: No episode ended within 500 random steps, and the environment has no known time limit.*Set --max-episode-steps 1000",
    "LimitAsTermination": r"time limit: All 12 episodes terminated after exactly 25 steps, and no reward or observation of their last steps.* If this is a time limit, return terminated = False, truncated = True",
    "VectorLimit": r"vectorized time limit: All \d+ episodes terminated after exactly 25 steps",
    "JaxLimit": r"time limit: All \d+ episodes terminated after exactly 25 steps",
    "OldLimit": r'time limit: info\["TimeLimit.truncated"\] is True, but truncated is False',
    "MaskByAnotherName": r"action mask: The environment has valid_action_mask, which looks like an action mask and is not used: name the method action_masks",
    "MaskUnderAnotherKey": r"action mask: The environment has info\['mask'\], which looks .* at every reset and step\.",
    "VectorMaskByAnotherName": r"vectorized action mask: The environment has legal_moves, which looks",
    "JaxMaskInInfo": r"action mask: The environment has info\['action_mask'\], .*: return the mask as an entry action_mask of a Dict observation\.",
    "VectorSeedIgnored": r"vectorized seeding: The same seed and the same actions gave different steps",
    "JaxKeyIgnored": r"keys: Six keys give the same first 3 steps.*Draw from the key with jax.random",
    # A slow machine is out of time before the last of the 4,800.
    "JaxEndless": r"episodes: No episode ended within [\d,]+ random steps",
}


@pytest.mark.parametrize("name", WARNINGS)
def test_probable_mistake_is_a_warning(name):
    found = findings(name)
    assert worst(found) == "warning"
    ours = [sentence for sentence in messages(found, "warning") if not sentence.startswith("Gymnasium: ")]
    (sentence,) = ours
    assert_matches(WARNINGS[name], sentence)


def assert_matches(pattern, sentence):
    assert re.search(pattern, sentence), sentence


@pytest.mark.parametrize(("name", "prefix"), [("Large", ""), ("JaxLarge", ""), ("VectorLarge", "vectorized ")])
def test_large_observations_and_rewards_are_warnings(name, prefix):
    scale = {f.check: f.message for f in findings(name) if f.check.endswith(" scale") and f.level == "warning"}
    assert set(scale) == {f"{prefix}observation scale", f"{prefix}reward scale"}
    assert "set normalize_reward = true (--normalize-reward)" in scale[f"{prefix}reward scale"]


def test_gymnasiums_checker_is_reported():
    (sentence,) = [s for s in messages(findings("SeedIgnored"), "warning") if s.startswith("Gymnasium")]
    assert_matches(r"Gymnasium's checker fails: .*Training with proximo requires only the other checks", sentence)
    sentences = [s for s in messages(findings("OutOfRange"), "warning") if s.startswith("Gymnasium")]
    assert_matches(
        r"Gymnasium's checker warns: The obs returned by the `step\(\)` method is not within the observation space", sentences[0]
    )


def test_max_episode_steps_replaces_the_warning_about_endless_episodes():
    assert messages(findings("Endless", max_episode_steps=50), "warning") == []
    env = make_env("broken_envs:JaxEndless")
    assert messages(check_environment(env, make_config("endless", {"max_episode_steps": 50}, preset=False)), "warning") == []


def test_environment_that_cannot_be_pickled_is_a_warning(monkeypatch):
    def fail(make, env_id):
        raise EnvError("broken_envs:Walk cannot be sent to a worker process.")

    monkeypatch.setattr(gymnasium_environment, "pickled", fail)
    assert messages(findings("Walk"), "warning") == ["workers: broken_envs:Walk cannot be sent to a worker process."]
