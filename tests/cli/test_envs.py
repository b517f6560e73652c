"""``proximo envs`` lists what can be trained."""

import json

from proximo.cli import main
from proximo.config import presets


def test_json_and_the_list_show_every_id_with_its_spaces_and_preset(capsys):
    assert main(["envs", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    listed = json.loads(out)
    entries = {entry["id"]: entry for group in listed.values() for entry in group}
    assert entries["gymnax:CartPole-v1"] == {
        "id": "gymnax:CartPole-v1", "preset": True, "observation": "Box(4,) float32", "action": "Discrete(2)",
    }  # fmt: skip
    assert entries["proximo:PocMemory"]["observation"] == "Box(3,) float32"
    installed = [name for name in presets.names() if listed[name.partition(":")[0] if ":" in name else "gymnasium"]]
    assert set(installed) <= {name for name, entry in entries.items() if entry["preset"]}
    assert main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (cartpole,) = [line for line in lines if "gymnax:CartPole-v1" in line]
    assert cartpole.split() == ["gymnax:CartPole-v1", "Box(4,)", "float32", "→", "Discrete(2)", "preset"]
    assert lines[-1].startswith("Yours: my_package.module:MyEnv")
