"""Trains five seeds in one program, with each of three cores as a device: ``python core_devices.py FOLDER``.
The tests start it in a new process, because the number of devices cannot change after JAX has started."""

import json
import sys
from pathlib import Path

import jax

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

from studies import Watching

SETTINGS = {**SMALL, "eval_every": 5 * BATCH}


def states(run_dirs):
    return [final_state(run_dir) for run_dir in run_dirs]


def policy(run_dir):
    return proximo.load(run_dir).policy.actor_critic


def narrowed(rates):
    """A batch of trials goes on with the last one after the first evaluation: its slots then, and the seconds
    of the whole batch, in those of the slots that are left."""
    batch.MIN_COMPILE_SECONDS, TimedCalls.seconds_per_update = 0.0, 1e9
    configs = [make_config("toys:RandomEnds", {**SETTINGS, "learning_rate": rate}, preset=False) for rate in rates]  # as compiled
    trials = batch.Batch(configs, [100], len(rates), Watching())
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
    four = train("four", seeds=4)
    of_four = set(spread)
    alone = train("alone", seed=1)
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


main(Path(sys.argv[1]))
