"""Several devices: an update on D devices equals the update on one device that draws its minibatches in the same D groups."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import proximo
from proximo.cli import main
from proximo.collect import JaxTrainer
from proximo.collect.devices import check_divisible, divided, with_device_number
from proximo.config import override
from proximo.config.loading import resume_warnings
from proximo.errors import ConfigError
from proximo.math.across_devices import ENVS_AXIS
from proximo.training.run_summary import describe_devices

import toys
from helpers import small_collector, small_config

from several_devices import CASES, ENVS, EPOCHS, MINIBATCHES, STEPS  # isort: skip


def measured(*parts):
    """What ``several_devices.py`` measures in a process with eight virtual devices."""
    folder = Path(__file__).parent
    env = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "NPROC": "4"}
    env["PYTHONPATH"] = os.pathsep.join([str(folder.parent), *filter(None, [env.get("PYTHONPATH")])])
    command = [sys.executable, str(folder / "several_devices.py"), *parts]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def fast():
    """The parts that every run of the tests measures, in one process."""
    return measured("updates", "local_loss", "seeds_axis", "trainings", "runs")


@pytest.mark.parametrize("case", CASES)
def test_update_equals_that_of_one_device_in_the_same_groups(fast, case):
    found = fast["updates"][case]
    assert max(found["policy"], found["learner"]) < 1e-12
    assert found["metrics"] < 1e-9
    # target_kl stops all devices at the same gradient step.
    assert 0 < found["gradient_steps"] < EPOCHS * MINIBATCHES or case == "mlp"


@pytest.mark.parametrize("mistake", ["advantages", "observations", "kl"])
def test_a_local_reduction_fails(fast, mistake):
    found = fast["updates"][mistake]
    assert max(found["policy"], found["learner"], found["metrics"]) > 1e-4


@pytest.mark.parametrize("kind", ["jax", "gymnasium"])
def test_a_training_equals_that_of_one_device_in_the_same_groups(fast, kind):
    found = fast["trainings"][kind]
    assert found["policy"] < 1e-9
    assert found["metrics"] < 1e-5
    assert (found["learns_on"], found["acts_on"]) == (4, 1)


def test_a_custom_loss_with_a_local_mean_ends_the_training_and_a_metric_is_nan(fast):
    assert fast["local_loss"] == {"healthy": False, "here": True, "everywhere": False}


def test_functions_on_several_devices_can_be_vmapped_over_seeds(fast):
    found = fast["seeds_axis"]
    assert found["devices"] == 2
    assert found["same"] == 0.0 < found["others"], "no seed changes another one"


def check_runs(found):
    for count, resumed in found.items():
        assert resumed["step"] == 4 * ENVS * STEPS
        assert resumed["bit for bit"] == (count == "4")
        assert len(resumed["warnings"]) == (count != "4")


def test_a_run_resumes_on_its_number_of_devices_bit_for_bit_and_on_one(fast):
    check_runs(fast["runs"])


@pytest.mark.slow
def test_runs_resume_on_any_number_of_devices_and_an_agent_changes_its_environment_there():
    found = measured("more_runs", "environments")
    check_runs(found["more_runs"])
    assert found["environments"] == {"steps": 4 * 4 * ENVS * STEPS, "loaded": 0.0}


@pytest.mark.slow
def test_seeds_are_divided_if_they_can_be_and_environments_otherwise():
    found = measured("seeds")["seeds"]
    assert found.pop("resumed") == [2 * 9 * 16] * 2
    assert "seed_groups" in found["2"]["axes"]
    assert "seed_groups" not in found["4"]["axes"]
    assert all(of_count["difference"] < 1e-9 for of_count in found.values())


def test_resume_warning_states_what_another_number_changes():
    [sentence] = resume_warnings(small_config(devices=4), small_config(devices=2))
    assert sentence.startswith("devices 4 → 2: minibatches are drawn in other groups")
    assert sentence.endswith("the learning problem stays the same.")


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"num_envs": 10}, "num_envs = 10 cannot be divided equally among 4 devices: choose a multiple of 4, or use 2 devices."),
        ({"num_envs": 4, "num_steps": 8, "num_minibatches": 32}, "8 steps of a rollout: choose a divisor of 8, such as 8."),
        (
            {"num_envs": 4, "num_steps": 12, "memory": "gru", "sequence_length": 2, "num_minibatches": 4},
            "each of 4 devices has 6 sequences of a rollout: choose a divisor of 6, such as 3.",
        ),
    ],
)
def test_settings_that_do_not_divide_are_refused(settings, fix):
    with pytest.raises(ConfigError) as error:
        check_divisible(small_config(**settings), 4)
    assert str(error.value).endswith(fix)
    check_divisible(small_config(**settings), 1)


def test_more_devices_than_there_are_is_one_sentence(capsys, tmp_path):
    assert main(["train", "toys:RandomEnds", "--no-preset", "--devices", "99", "--runs-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert f"devices = 99, but JAX has {jax.device_count()} here (cpu): set devices to {jax.device_count()}" in error
    assert not list(tmp_path.iterdir())
    assert with_device_number(small_config(devices="all")).run.devices == jax.device_count()


def test_an_agent_is_loaded_with_fewer_devices(tmp_path):
    agent = proximo.PPO(toys.RandomEnds(), num_envs=4, num_steps=8, num_minibatches=2, hidden_sizes=4)
    assert agent.policy.init_memory() is not None  # the agent now has a state
    agent.config = override(agent.config, {"devices": 4})
    loaded = proximo.load(agent.save(tmp_path / "agent"), env=toys.RandomEnds())
    assert loaded.config.run.devices == 1
    assert [warning for warning in loaded.warnings if warning.startswith("devices 4 → 1")]


@pytest.mark.parametrize(
    ("used", "text"), [(1, "cpu, 2 cores (1 of 4 devices; --devices all uses all)"), (4, "4 × cpu, 2 cores")]
)
def test_the_banner_names_devices_that_are_not_used(monkeypatch, used, text):
    monkeypatch.setattr(jax, "devices", lambda: [jax.local_devices()[0]] * 4)
    monkeypatch.setattr("proximo.training.run_summary.cores", lambda: 2)
    assert describe_devices(used) == text


def communicated(jaxpr, repeats=1):
    """The arrays that devices add or compare: how often, and how many numbers."""
    found = []
    for equation in jaxpr.eqns:
        if ENVS_AXIS in equation.params.get("axes", ()):
            found += [(repeats, variable.aval.size) for variable in equation.invars]
        inner = repeats * equation.params["length"] if equation.primitive.name == "scan" else repeats
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(parameter, "eqns") or hasattr(parameter, "jaxpr"):
                found += communicated(getattr(parameter, "jaxpr", parameter), inner)
    return found


def test_an_update_communicates_its_gradients_and_a_few_numbers():
    mesh = jax.sharding.AbstractMesh((4,), (ENVS_AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    collector = small_collector(num_envs=8)
    state = jax.eval_shape(collector.init, jax.random.key(0))
    update, collect = JaxTrainer(collector).update, lambda state: collector.collect(state.learner.policy, state.collector)
    policy = state.learner.policy
    parameters = sum(x.size for x in jax.tree.leaves(policy)) - sum(x.size for x in jax.tree.leaves(policy.normalizer))
    of_update, of_collecting = (communicated(jax.make_jaxpr(divided(f, mesh))(state).jaxpr) for f in (update, collect))
    assert {repeats for repeats, _ in of_collecting} == {1}
    assert sum(size for _, size in of_collecting) < 30
    gradient_steps = 4
    per_step = sum(size for repeats, size in of_update if repeats == gradient_steps)
    assert parameters < per_step < parameters + 30
    assert sum(repeats * size for repeats, size in of_update) < gradient_steps * per_step + 100
