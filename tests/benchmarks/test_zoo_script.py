"""``benchmarks/zoo.py``: the card of a policy of the zoo."""

import pytest

import zoo

PUBLISHED = """# PPO

## Results

Files: `policy.safetensors`, `metrics.jsonl` the learning curves.

## Use

    proximo pull somewhere

## Training

Trained on cpu.
"""


def test_card_has_the_commands_of_the_zoo_and_the_origin():
    text = zoo.card(PUBLISHED, "zoo:Toy", 1_000_003, {"levels": "held_out"}, {"seed-3": 10.0, "seed-4": 9.5})
    assert "learning curves" not in text
    assert "proximo pull somewhere" not in text
    assert "proximo eval zoo:Toy --seed 1000003 --env-settings levels=held_out" in text
    assert "seed-3: 10.00, seed-4: 9.50. The run with the highest one was taken" in text
    assert text.endswith("made the folder.\n\nTrained on cpu.\n")
    with pytest.raises(SystemExit, match="matches 0 times"):
        zoo.card(PUBLISHED.replace("## Training", "## The training"), "zoo:Toy", 0, {}, {"seed-3": 10.0})
