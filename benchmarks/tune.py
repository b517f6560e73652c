"""Test whether `proximo tune` finds good settings within ten minutes, starting from deliberately bad ones.

    python benchmarks/tune.py                            # ten minutes of tuning, then three seeds of both settings

The search runs as the command line runs it, from the settings in tune_acrobot.yaml, and ends within its --seconds. The preset that it
writes is then trained on seeds 0-2, which the search has not used, and so are the bad settings. The final policies are evaluated by
`proximo.evaluate` on 500 episodes each. Result: benchmarks/results/tune.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import proximo
from proximo.settings import make_config
from proximo.storage.system_info import system_info

HERE = Path(__file__).parent
ENV, BAD, MARK = "gymnax:Acrobot-v1", HERE / "tune_acrobot.yaml", -90.0
SEEDS, EPISODES = 3, 500


def tune(seconds: float, trials: int, more: list[str], folder: Path) -> tuple[dict[str, Any], list[str], float]:
    """What the command printed, the command, and its seconds from the start of the process to its end."""
    words = ["tune", ENV, "--no-preset", "--config", str(BAD.relative_to(HERE.parent)), "--trials", str(trials)]
    words += ["--seconds", f"{seconds:g}", *more]
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "proximo", *words, "--tune-dir", str(folder), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=HERE.parent,
    )
    return json.loads(ended.stdout), words, time.monotonic() - started


def evaluated(file: Path, folder: Path, preset: bool) -> list[float]:
    """The mean return of each seed's final policy."""
    config = make_config(ENV, {"seeds": SEEDS, "seed": 0, "runs_dir": str(folder)}, file, preset=preset)
    results = proximo.train(config=config)
    return [proximo.evaluate(str(r.run_dir), EPISODES, runs_dir=str(folder)).summary()["return_mean"] for r in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=580.0)
    parser.add_argument("--trials", type=int, default=400, help="maximum number of trials; usually the time ends the search")
    parser.add_argument("--beside", default="nothing", help="other work on the machine, for the record")
    options, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        before = os.getloadavg()
        found, words, seconds = tune(options.seconds, options.trials, more, folder / "tune")
        after = os.getloadavg()
        preset = Path(found["preset"])
        result = {
            "command": shlex.join(["proximo", *words]),
            "seconds": round(seconds, 1),
            "mark": MARK,
            "tuned": evaluated(preset, folder / "runs", preset=True),
            "bad": evaluated(BAD, folder / "runs", preset=False),
            "found": {
                **{k: found[k] for k in ("trials", "best", "base")},
                "preset": preset.read_text().replace(f"{folder}/", ""),
            },
            "judged_by": f"proximo.evaluate, {EPISODES} episodes, final policies of seeds 0-{SEEDS - 1}",
            "beside": options.beside,
            "load_average": {"before": before, "after": after},
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "system": system_info(),
        }
    (HERE / "results" / "tune.json").write_text(json.dumps(result, indent=1) + "\n")
    reached = "reached" if min(result["tuned"]) >= MARK else "NOT reached"
    print(f"{seconds:.0f} s; tuned {result['tuned']}, bad {result['bad']}: {MARK:g} by every seed is {reached}")


if __name__ == "__main__":
    main()
