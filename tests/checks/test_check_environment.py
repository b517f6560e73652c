"""Every check finds its fault, reports it with the fix, and passes a sound environment."""

import importlib.metadata
import re

import pytest

from proximo.checks import check_environment, check_names, play, random_steps, verdict
from proximo.envs import Preprocessing, make_env
from proximo.settings import make_config


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Plays are of 60 steps instead of 300, and those of endless episodes of 200."""
    monkeypatch.setattr(random_steps, "MAX_STEPS", 200)
    monkeypatch.setattr(play.play, "__defaults__", (3, 60, 2.0, 0))


def made(name, **preprocessing):
    env_id = name if ":" in name or "-v" in name else f"broken_envs:{name}"
    return make_env(env_id, {}, Preprocessing(**preprocessing))


def findings(name, **preprocessing):
    settings = {"num_envs": 4, "normalize_observation": False, "normalize_reward": False, **preprocessing}
    return list(check_environment(made(name, **preprocessing), make_config(name, settings, preset=False)))


# Gymnasium's own checker warns from 1.4 on of observations that share an array.
NEW_CHECKER = tuple(map(int, importlib.metadata.version("gymnasium").split(".")[:2])) >= (1, 4)
SOUND = [
    "CartPole-v1", "Pendulum-v1", "gymnax:CartPole-v1", "toys:ContinuousRandomEnds", "JaxMaskedToTheEnd", "JaxMaskedBits", "Wide",
    "MaskedToTheEnd", "MaskedBits", "Reused", "factory", "Vector", "SameStep", "Disabled", "MaskedDisabled", "Penalty", "VectorPenalty",
    "JaxPenalty",
]  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_sound_environment_has_only_ok_findings(name):
    found = findings(name)
    if name == "Reused" and NEW_CHECKER:
        found = [f for f in found if f.check != "Gymnasium"]
    assert [f for f in found if f.level != "ok"] == []
    assert "no problem was found" in verdict(name, found)
    names = [f.check for f in found]
    expected = check_names(made(name))
    assert names == [name for name in expected if name in names]
    assert set(expected) - set(names) <= {"Gymnasium"}


ERRORS = {
    "WrongShape": r"steps: .*step .*returned observation of shape \(1, 2\): its space is .*expected \(2,\)",
    "NanReward": r"steps: .*returned the reward nan: expected a finite number",
    "FourValues": r"steps: .*step .*got 4\): expected \(observation, reward, terminated, truncated, info\)",
    "Raises": r"steps: .*step .*raised IndexError: list index out of range \(broken_envs.py, line \d+\)$",
    "Silent": r"steps: .*step .*raised AssertionError \(broken_envs.py, line \d+\)",
    "Shared": r"seeding: .*gives different steps if other environments run in the same process.*keep all state in self",
    "NothingAllowed": r"steps: .*returned an action_mask that allows no action: at least one must be allowed",
    "MaskTooLong": r"policy: The action mask is .*: for actions of Discrete\(2\), expected one array of 2",
    "VectorRaisesLate": r"episodes: .*step .*raised RuntimeError: too late \(broken_envs.py, line \d+\)",
    "VectorShape": r"vectorized steps: .*returned reward of shape \(3, 1\): expected \(3,\)",
    "OneSeed": r"vectorized seeding: Environments 0 and 1 gave the same \d+ steps.*generator of its own",
    "Early": r"vectorized steps: .*declares NextStep, but its info has a final observation, as in same-step",
    "EarlyInSilence": r"vectorized steps: .*declares NextStep, but the step after an episode's end has the reward 1.0: expected 0",
    "EarlyWithoutReward": r"vectorized autoreset: .*declares NextStep, but the step after an episode's end, .*, uses its action",
    "LateButSameStep": r'declares SameStep, but an episode ended without its last observation in info\["final_obs"\]',
    "FinalIsObservation": r"vectorized steps: .*expected the first one of the next episode. Fix this, or declare the mode that it uses in metadata",
    "ResetsAll": r'vectorized steps: .*reset\(options=\{"reset_mask": ...\}\) changed environments that the mask does not select',
    "JaxBranch": r"tracing: .*step raised TracerBoolConversionError.*Python cannot branch on an array: use jnp.where",
    "JaxNumpyNoise": r"side effects: The same key gives a different result the second time.*Draw from the key with jax.random",
    "JaxKeeps": r"side effects: .*changes self.count in reset or step.*Keep it in the state",
    "JaxFrozen": r"jit and vmap: .*it reads something while it is traced.*Compute everything from the arguments",
    "JaxCallback": r"jit and vmap: .*gives different results in Python and under jit and vmap: .*calls back into Python",
    "JaxNan": r"steps: .*step of environment \d .*returned the reward .*nan.*: expected a finite number",
    "JaxNothingAllowed": r"steps: .*returned an action_mask that allows no action",
    "odd_envs:WrongShape": r"tracing: .*reset returns an observation float32\[4\]: its observation space is Box\(3,\)",
}
WARNINGS = {
    "SeedIgnored": r"seeding: The same seed and the same actions give different results from step 0 on.*only from self.np_random",
    "Fixed": r"seeding: Seeds 0 and 1 give the same \d+ steps: either nothing is random here",
    "Endless": r"episodes: No episode ended within [\d,]+ random steps.*, and the environment has no known time limit.*Set --max-episode-steps 1000",
    "LimitAsTermination": r"time limit: All \d+ episodes terminated after exactly 25 steps, .* If this is a time limit, return terminated = False, truncated = True",
    "VectorLimit": r"vectorized time limit: All \d+ episodes terminated after exactly 25 steps",
    "JaxLimit": r"time limit: All \d+ episodes terminated after exactly 25 steps",
    "MaskByAnotherName": r"action mask: The environment has valid_action_mask, which looks like an action mask and is not used: name the method action_masks",
    "MaskUnderAnotherKey": r"action mask: The environment has info\['mask'\], which looks .* at every reset and step\.",
    "VectorMaskByAnotherName": r"vectorized action mask: The environment has legal_moves, which looks",
    "JaxMaskInInfo": r"action mask: The environment has info\['action_mask'\], .*: return the mask as an entry action_mask of a Dict observation\.",
    "VectorSeedIgnored": r"vectorized seeding: The same seed and the same actions give different results",
    "JaxKeyIgnored": r"seeding: Seeds 0 and 1 give the same \d+ steps.*from the key",
    "JaxEndless": r"episodes: No episode ended within [\d,]+ random steps",
}


@pytest.mark.parametrize(("level", "name"), [*(("error", name) for name in ERRORS), *(("warning", name) for name in WARNINGS)])
def test_fault_is_reported_once_with_its_fix(level, name):
    found = findings(name)
    own = [f"{f.check}: {f.message}" for f in found if f.level == level and f.check != "Gymnasium"]
    assert len(own) == 1
    assert re.search({**ERRORS, **WARNINGS}[name], own[0]), own[0]
    assert ("cannot be trained as it is: 1 error" in verdict(name, found)) == (level == "error")
    assert level == "error" or all(f.level != "error" for f in found)


LARGE = {"observation scale": "range", "reward scale": r"set normalize_reward = true \(--normalize-reward\)"}
SEVERAL = {
    "Large": LARGE,
    "JaxLarge": LARGE,
    "VectorLarge": {f"vectorized {check}": sentence for check, sentence in LARGE.items()},
    "SeedIgnored": {"Gymnasium": r"checker fails: .*Training with proximo requires only the other checks"},
    "OutOfRange": {"Gymnasium": r"checker warns: .*`step\(\)` method is not within the observation space"},
}


@pytest.mark.parametrize("name", SEVERAL)
def test_scales_and_what_gymnasiums_checker_finds_are_warnings(name):
    found = {f.check: f.message for f in findings(name) if f.level == "warning"}
    assert all(re.search(sentence, found[check]) for check, sentence in SEVERAL[name].items())
    assert {check for check in found if check.endswith(" scale")} <= SEVERAL[name].keys()


@pytest.mark.parametrize("name", ["Endless", "JaxEndless"])
def test_max_episode_steps_replaces_the_warning_about_endless_episodes(name):
    assert all(f.level == "ok" for f in findings(name, max_episode_steps=50))
