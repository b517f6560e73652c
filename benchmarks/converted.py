"""Train the configs of recurrent-ppo-truncated-bptt as `proximo convert` translates them.

    python benchmarks/converted.py configs/cartpole.yaml configs/poc_memory_env.yaml --seeds 100-104
    python benchmarks/converted.py configs/mystery_path_grid.yaml --seeds 100 --minutes 15

The configs are files of that system's repository. Nothing is added to the converted settings but the seed. A training ends at its last step, or
after ``--minutes``; it is then reported as unfinished. Results are in ``results/converted.json``, which ``RESULTS.md`` shows
beside the system's own. Seeds that are recorded there are skipped. After Ctrl-C, the same command continues.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import proximo
from measurements import circumstances, parse_seeds
from proximo.config import override
from proximo.convert import convert
from proximo.jax_setup import cache_folder
from proximo.storage.run_directory import METRICS, file_name
from proximo.tracking.run_trackers import read_rows
from suite_seed import last_episodes, learning_curve, mean_return

EPISODES = 500


class TimeLimit:
    """A callback that stops a training after some minutes."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes

    def on_update(self, info: Any) -> bool:
        return time.monotonic() > self.end


def train(config: proximo.Config, minutes: float, episodes: int) -> dict[str, Any]:
    """Train one seed, or continue its training, and evaluate its last policy. Returns a row of the results."""
    run_dir = Path(config.run.runs_dir) / file_name(config.env.id) / config.run.name
    stop = {"callbacks": [TimeLimit(minutes)], "progress": True}
    [result] = proximo.resume(run_dir, **stop) if run_dir.is_dir() else proximo.train(config=config, **stop)
    if result.interrupted is not None:
        sys.exit("Interrupted: the same command continues.")
    rows = read_rows(run_dir / METRICS)
    policy = proximo.load_policy(run_dir)
    played = {how: proximo.evaluate(policy, episodes, deterministic=how == "greedy", seed=10**6) for how in ("sampled", "greedy")}
    return {
        "steps": result.steps,
        "of_steps": config.total_updates * config.batch_size,
        "train_seconds": round(result.seconds, 1),  # of the last session
        "last_100": round(mean_return(last_episodes(rows)), 4),
        "curve": learning_curve(rows),
        **{how: {name: x for name, x in episodes.summary().items() if x is not None} for how, episodes in played.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--seeds", type=parse_seeds, default=[100], help="such as 100-104")
    parser.add_argument("--minutes", type=float, default=10**6, help="of training, for each seed")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of each evaluation, on the levels of the training")
    parser.add_argument("--work", type=Path, default=cache_folder() / "converted", help="folder of the run directories")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "converted.json")
    arguments = parser.parse_args()
    for path in arguments.configs:
        converted = convert(str(path))
        for seed in arguments.seeds:
            results = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
            record = results.setdefault(path.name, {"settings": converted.yaml, "seeds": {}})
            if str(seed) in record["seeds"]:
                continue
            print(f"{path.name}, seed {seed}", flush=True)
            run = {
                "seed": seed,
                "runs_dir": str(arguments.work),
                "name": f"{path.stem}-{seed}",
                "eval_episodes": 0,
                "tensorboard": False,
            }
            row = train(override(converted.config, run), arguments.minutes, arguments.episodes)
            record["seeds"][str(seed)] = {**row, "circumstances": circumstances()}
            arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
