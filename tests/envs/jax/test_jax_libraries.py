"""What all libraries of JAX environments have in common; those that are not installed are skipped."""

import pytest

from proximo.envs import libraries, make_env
from proximo.envs.libraries import LIBRARIES
from proximo.errors import ProximoError

from adapted import traceable

CLASSIC, EMPTY = "craftax:Craftax-Classic-Symbolic-v1", "navix:Navix-Empty-5x5-v0"
REFUSED = [
    ("brax:antt", {}, r"brax has no environment 'antt' \(did you mean 'ant'\?\); `proximo envs brax` lists them"),
    ("brax:swimmer", {}, r"brax has no environment 'swimmer'"),
    ("brax:ant", {"backnd": "spring"}, r"brax:ant has no parameter 'backnd' \(did you mean 'backend'\?\)"),
    ("brax:ant", {"episode_length": 0}, r"episode_length = 0: expected a number of steps, 1"),
    ("brax:ant", {"backend": "hard"}, r"Making brax:ant raised ValueError: backend should be in"),
    ("craftax:Craftax-Symbolic", {}, r"craftax has no environment 'Craftax-Symbolic' \(did you mean 'Craftax-Symbolic-v1'\?\)"),
    (CLASSIC, {"max_steps": 3}, r"has no parameter 'max_steps' \(did you mean 'max_timesteps'\?\)"),
    (CLASSIC, {"separate_map": 3}, r"separate_map = 3: expected true or false"),
    ("jumanji:Snake-v2", {}, r"jumanji has no environment 'Snake-v2' \(did you mean 'Snake-v1'\?\)"),
    ("jumanji:Snake-v1", {"num_row": 3}, r"jumanji:Snake-v1 has no parameter 'num_row' \(did you mean 'num_rows'\?\)"),
    ("jumanji:Snake-v1", {"time_limit": 1.5}, r"time_limit = 1.5: expected a whole number"),
    ("navix:Navix-Empty-5x5", {}, r"navix has no environment 'Navix-Empty-5x5' \(did you mean 'Navix-Empty-5x5-v0'\?\)"),
    (EMPTY, {"size": 3}, r"navix:Navix-Empty-5x5-v0 has no parameter 'size'; it has max_steps, view"),
    (EMPTY, {"view": "symbolc"}, r"view = 'symbolc' \(did you mean 'symbolic'\?\): expected symbolic, symbolic_first"),
    ("playground:CartpolBalance", {}, r"playground has no environment 'CartpolBalance' \(did you mean 'CartpoleBalance'\?\)"),
    ("playground:CartpoleBalance", {"vision": True}, r"playground:CartpoleBalance has no parameter 'vision'"),
    ("playground:CartpoleBalance", {"ctrl_dt": "short"}, r"Making playground:CartpoleBalance raised TypeError"),
]


def installed(library):
    if not libraries.is_installed(library):
        pytest.skip(f"{library} is not installed")


@pytest.mark.parametrize(("env_id", "settings", "sentence"), REFUSED)
def test_unsupported_environment_or_parameter_raises(env_id, settings, sentence):
    installed(env_id.partition(":")[0])
    with pytest.raises(ProximoError, match=sentence):
        make_env(env_id, settings)


@pytest.mark.slow
@pytest.mark.parametrize("library", [name for name, row in LIBRARIES.items() if row.is_jax and row.install and name != "gymnax"])
def test_all_environments_can_be_traced(library):
    installed(library)
    traceable(libraries.names(library), lambda name: make_env(f"{library}:{name}"))
