"""The speed of an accelerator with and without branches around the resets and the values of final observations.

    python benchmarks/branches.py [--envs 2048 8192]

CartPole trains with the settings of ``accelerator.py``. Each program is timed twice, in turns. The results are in ``results/branches.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from accelerator_case import compiled, config_of, measure
from measurements import circumstances
from proximo.collect import jax_vector

import jax  # isort: skip  (after proximo, which sets the number of threads)

HERE = Path(__file__).parent
UPDATES = 4


def main() -> None:
    """Measure, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--seconds", type=float, default=1.0, help="time of the timed calls of a program in a round")
    parser.add_argument("--out", type=Path, default=HERE / "results/branches.json")
    arguments = parser.parse_args()
    if jax.default_backend() == "cpu":
        sys.exit("This machine has no accelerator: on a CPU, both programs have branches.")
    rows = []
    for envs in arguments.envs:
        config, programs = config_of("CartPole", envs), {}
        for name, many in {"branches": envs + 1, "none": envs}.items():
            jax_vector.MANY_ENVS = many
            program, state, _ = compiled(config, 1, UPDATES)
            programs[name] = program, state
        for name in [*programs, *programs]:
            program, state = programs[name]
            calls, _, _ = measure(program, jax.tree.map(lambda x: x.copy(), state), arguments.seconds)
            rows.append(
                {"envs": envs, "program": name, "steps_per_second": round(UPDATES * config.batch_size / statistics.median(calls))}
            )
            print(rows[-1], flush=True)
    arguments.out.write_text(json.dumps({"script": "benchmarks/branches.py", **circumstances(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
