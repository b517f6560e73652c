"""Seeds of one program are divided over cores, which changes nothing else. The tests start this file as a program:
the number of devices cannot change after JAX has started."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

import proximo
from commands import BATCH, SMALL, final_state
from proximo import jax_setup
from proximo.collect.devices import with_device_number
from proximo.config import Config, override
from proximo.settings import make_config
from proximo.storage.named_folders import seed_run_dirs
from proximo.storage.system_info import system_differences
from proximo.training.backend import TimedCalls
from proximo.training.backends import JaxBackend
from proximo.training.run_summary import describe_devices
from proximo.tuning import batch

SETTINGS = {**SMALL, "eval_every": 5 * BATCH}


def states(run_dirs):
    return [final_state(run_dir) for run_dir in run_dirs]


def policy(run_dir):
    return proximo.load(run_dir).policy.actor_critic


def narrowed(rates):
    """A batch of trials goes on with the last one after the first evaluation: its slots then, and the seconds
    of the whole batch, in those of the slots that are left."""
    batch.MIN_COMPILE_SECONDS, TimedCalls.seconds_per_update = 0.0, 1e9
    at_once = SimpleNamespace(requested=None, call=lambda function, *arguments, **_: function(*arguments))
    configs = [make_config("toys:RandomEnds", {**SETTINGS, "learning_rate": rate}, preset=False) for rate in rates]
    trials = batch.Batch(configs, [100], len(rates), at_once)
    for _, _, results in trials.train(2):
        trials.live = {len(rates) - 1} if results else trials.live
    return trials.slots, trials.full_seconds / (trials.timed.seconds_per_update * trials.total_updates)


def main(folder):
    jax_setup.cores = lambda: 3  # two seeds each, of which one is a copy
    spread, advance = [], JaxBackend.advance

    def watched(backend, state, num_updates):
        after, metrics = advance(backend, state, num_updates)
        spread.append(len(after.healthy.devices()))
        return after, metrics

    inspected = set()

    def watched_inspection(backend, before, after):
        program = backend._programs.inspect
        backend._programs.inspect = lambda *states: found_on(program(*states))
        try:
            return inspect(backend, before, after)
        finally:
            backend._programs.inspect = program

    def found_on(quantities):
        inspected.update(len(x.devices()) for x in jax.tree.leaves(quantities))
        return quantities

    inspect, JaxBackend.advance, JaxBackend.inspect = JaxBackend.inspect, watched, watched_inspection

    def train(name, **settings):
        given = {**SETTINGS, "runs_dir": str(folder), "name": name, **settings}
        return [result.run_dir for result in proximo.train("toys:RandomEnds", preset=False, progress=False, **given)]

    whole, half = train("whole", seeds=5, histograms=True), train("half", seeds=5, total_steps=10 * BATCH)
    of_five = set(spread)
    proximo.resume(half[0].parent, progress=False, total_steps=SMALL["total_steps"])
    spread.clear()
    four = train("four", seeds=4, eval_episodes=0)
    of_four = set(spread)
    alone = train("alone", seed=1, eval_episodes=0)
    system = json.loads((whole[0] / "system.json").read_text())
    (whole[0] / "system.json").write_text(json.dumps({**system, "core_devices": 0}))
    differences = jax.tree.map(lambda a, b: float(abs(a - b).max()), policy(whole[1]), policy(alone[0]))
    found = {
        "devices": jax.device_count(),
        "of five seeds": sorted(of_five),
        "of four seeds": sorted(of_four),
        "as four of five": states(four) == states(whole)[:4],
        "last": spread[-1],
        "resumed": states(seed_run_dirs(half[0].parent)) == states(whole),
        "difference": max(jax.tree.leaves(differences)),
        "differs": len({str(state) for state in states(whole)}),
        "inspected on": sorted(inspected),
        "warnings": [system_differences(whole[0], "gymnax", several_seeds) for several_seeds in (True, False)],
        "narrowed": [narrowed(rates) for rates in ((1e-4, 3e-4, 1e-3, 3e-3, 1e-2), (1e-4, 1e-2))],
        "described": describe_devices(1),
        "all": with_device_number(override(Config(), {"devices": "all"})).run.devices,
    }
    print(json.dumps(found))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What ``main`` prints."""
    folder = tmp_path_factory.mktemp("cores")
    command = [sys.executable, "-W", "error::RuntimeWarning", __file__, str(folder)]
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "NPROC": "4", "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_as_few_cores_share_the_seeds_as_train_two_each(found):
    assert found["devices"] == 3
    assert (found["of five seeds"], found["of four seeds"], found["last"]) == ([3], [2], 1)
    assert found["as four of five"], "a copy of a seed changes no other seed"
    assert found["differs"] == 5, "all seeds are the same"
    assert found["difference"] < 1e-3, "a seed learns what it learns alone"
    assert "devices" not in found["described"], "cores are no devices for users"
    assert found["all"] == 1


def test_histograms_are_computed_on_one_core(found):
    """Divided, each core would need the seeds of the others. The group without them has the same bits."""
    assert found["inspected on"] == [1]


def test_a_tuning_batch_narrows_if_a_core_then_trains_fewer_trials(found):
    five, two = found["narrowed"]
    assert five == [[[4, 100]], 2], "two cores trained two trials each"
    assert two == [[[0, 100], [1, 100]], 1], "each on its own core: one alone would take as long"


def test_a_resumed_group_equals_the_uninterrupted_one_bit_for_bit(found):
    assert found["resumed"]
    (warning,), none = found["warnings"]
    assert warning.startswith("the number of cores that share the seeds was 0 and is 3 now")
    assert none == [], "for groups only"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
