"""Two policies for CartPole, trained on poles of 0.25 to 4 m, drawn at each reset, and on the pole of 1 m, are evaluated on poles of each length.

python benchmarks/poles.py        # minutes; writes results/poles.json
"""

import json
from pathlib import Path
from typing import Any

import jax
from jaxtyping import Array, Key

import proximo

ENV_ID, STEPS, EPISODES, SEEDS = "gymnax:CartPole-v1", 1_000_000, 100, range(40, 45)
POLES = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)
RESULTS = Path(__file__).parent / "results" / "poles.json"


def draw(key: Key[Array, ""], params: Any) -> Any:
    """A pole of 0.25 to 4 m, uniform in the logarithm. ``length`` is half the pole."""
    half = 0.125 * 16 ** jax.random.uniform(key)
    return params.replace(length=half, polemass_length=params.masspole * half)


def returns(randomize: Any, seed: int) -> list[float]:
    """The mean return on each pole after a training."""
    agent = proximo.PPO(ENV_ID, seed=seed, randomize=randomize).learn(STEPS)
    settings = [{"length": pole / 2, "polemass_length": 0.1 * pole / 2} for pole in POLES]
    return [agent.evaluate(EPISODES, env=ENV_ID, env_settings=of_pole).summary()["return_mean"] for of_pole in settings]


if __name__ == "__main__":
    found: dict[str, dict[str, list[float]]] = {"one pole": {}, "all poles": {}}
    print("poles of", *POLES, "m")
    for seed in SEEDS:
        for name, randomize in (("one pole", "none"), ("all poles", draw)):
            found[name][str(seed)] = returns(randomize, seed)
            print(name, seed, *(f"{x:.0f}" for x in found[name][str(seed)]), flush=True)
    record = {"command": "python benchmarks/poles.py", "steps": STEPS, "episodes": EPISODES, "poles": POLES, "returns": found}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
