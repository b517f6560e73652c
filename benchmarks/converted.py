"""Train the configs of recurrent-ppo-truncated-bptt as `proximo convert` translates them.

    python benchmarks/converted.py configs/cartpole.yaml configs/poc_memory_env.yaml --seeds 100-104
    python benchmarks/converted.py configs/mystery_path_grid.yaml --seeds 100 --minutes 15

The configs are files of that system's repository. Nothing is added to the converted settings but the seed. A training ends at its last step, or
after ``--minutes``; it is then reported as unfinished. Results are in ``results/converted.json``, which ``RESULTS.md`` shows
beside the system's own. Seeds that are recorded there are skipped.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import proximo
from measurements import circumstances, parse_seeds
from proximo.config import override
from proximo.convert import convert
from proximo.storage.run_directory import METRICS
from proximo.tracking.json_lines import read_rows
from suite_seed import last_episodes, learning_curve, mean_return

EPISODES = 500


class TimeLimit:
    """A callback that stops a training after some minutes."""

    def __init__(self, minutes: float):
        self.end = time.monotonic() + 60 * minutes

    def on_update(self, info: Any) -> bool:
        return time.monotonic() > self.end


def train(config: proximo.Config, minutes: float, episodes: int) -> dict[str, Any]:
    """Train one seed and evaluate its last policy. Returns a row of the results."""
    with tempfile.TemporaryDirectory() as folder:
        config = override(config, {"runs_dir": folder, "name": "run", "eval_episodes": 0, "tensorboard": False})
        [result] = proximo.train(config=config, callbacks=[TimeLimit(minutes)], progress=True)
        rows = read_rows(result.run_dir / METRICS)
        policy = proximo.load_policy(result.run_dir)
        played = {
            how: proximo.evaluate(policy, episodes, deterministic=how == "greedy", seed=10**6) for how in ("sampled", "greedy")
        }
    return {
        "steps": result.steps,
        "of_steps": config.total_updates * config.batch_size,
        "train_seconds": round(result.seconds, 1),
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
            row = train(override(converted.config, {"seed": seed}), arguments.minutes, arguments.episodes)
            record["seeds"][str(seed)] = {**row, "circumstances": circumstances()}
            arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
