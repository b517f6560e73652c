"""Make a policy of the zoo, ``zoo:NAME``, from trained runs.

    python benchmarks/zoo.py PocMemory runs/proximo-PocMemory/many/seed-*
    python benchmarks/zoo.py MemoryS9 RUN --unseen levels=held_out
    python docs/tables.py      # writes the table of docs/zoo.md

Of several runs, the one with the highest mean return in its last 100 training episodes is taken. Its final policy is evaluated on
environment seeds that no training has used. The folder ``src/proximo/zoo/NAME`` then has the published policy without the optimizer, and its
card.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

from proximo.config import Config, override
from proximo.publish import manifest, push
from proximo.storage import checkpoint, run_directory, zoo
from proximo.tracking.run_trackers import read_rows
from suite_seed import LAST_EPISODES, last_episodes, mean_return
from suite_tasks import EVALUATION_SEEDS

EPISODES = 100
MAX_BYTES = 300_000
OF_TRAINING = ("eval_episodes", "checkpoint_every", "keep_checkpoints", "tensorboard")
"""Settings of a run that a suite changes and that a user who continues it expects at their defaults."""


def training_return(run_dir: Path) -> float:
    """Mean return of the last episodes of the training."""
    return mean_return(last_episodes(read_rows(run_dir / run_directory.METRICS)))


def copy_final(run_dir: Path, copy: Path) -> Config:
    """Copy what is published of a run: settings, system and the last checkpoint. Returns its settings."""
    defaults = Config().run
    config = override(run_directory.read_config(run_dir), {name: getattr(defaults, name) for name in OF_TRAINING})
    last = checkpoint.steps(run_dir / "checkpoints")[-1]
    if last != config.total_updates * config.batch_size:
        sys.exit(f"{run_dir} is not complete: its last checkpoint is of step {last:,}.")
    copy.mkdir()
    (copy / "config.yaml").write_text(run_directory.render_config(config))
    shutil.copyfile(run_dir / "system.json", copy / "system.json")
    shutil.copytree(run_dir / "checkpoints" / str(last), copy / "checkpoints" / str(last))
    return config


def card(text: str, name: str, seed: int, unseen: dict[str, str], returns: dict[str, float]) -> str:
    """The card of the published folder, with the commands of the zoo and the origin of the policy."""
    settings = f" --env-settings {','.join(f'{key}={value}' for key, value in unseen.items())}" if unseen else ""
    use = (
        f"    proximo watch {name}\n    proximo eval {name} --seed {seed}{settings}   # the table above\n    proximo export {name}\n"
        f"    proximo pull {name}   # makes a run, which `proximo train --resume` continues\n\n"
        f'```python\nimport proximo\n\npolicy = proximo.load_policy("{name}")  # it acts\nagent = proximo.load("{name}")  # it also learns\n```'
    )
    each = ", ".join(f"{run}: {value:,.2f}" for run, value in returns.items())
    choice = " The run with the highest one was taken; evaluations did not affect the choice." if len(returns) > 1 else ""
    origin = (
        f"`proximo train --config config.yaml`, with the file in this folder. Mean return of the last {LAST_EPISODES} training episodes: "
        f"{each}.{choice} `benchmarks/zoo.py` made the folder.\n"
    )
    changes = {
        r", `metrics\.jsonl` the learning curves": "",
        r"(?<=## Use\n\n).*?(?=\n\n## Training)": use,
        r"(?<=## Training\n)": f"\n{origin}",
    }
    for pattern, replacement in changes.items():
        text, count = re.subn(pattern, lambda _, new=replacement: new, text, flags=re.S)
        if count != 1:
            sys.exit(f"The card of a published policy has changed: {pattern} matches {count} times, expected once.")
    return text


def make(name: str, run_dirs: list[Path], unseen: dict[str, str]) -> None:
    """Write the folder of the policy."""
    returns = {run_dir: training_return(run_dir) for run_dir in run_dirs}
    best = max(run_dirs, key=lambda run_dir: returns[run_dir])
    with tempfile.TemporaryDirectory() as work:
        copy, made = Path(work) / "zoo", Path(work) / "made"
        seed = EVALUATION_SEEDS + copy_final(best, copy).run.seed
        published = push(copy, made, episodes=EPISODES, seed=seed, env_settings=unseen, clip=False, policy_only=True)
        if len(by_name := {run_dir.name: value for run_dir, value in returns.items()}) < len(returns):
            sys.exit("Two runs have the same name: the card lists the runs by name.")
        path = made / manifest.CARD
        path.write_text(card(path.read_text(), zoo.PREFIX + name, seed, unseen, by_name))
        size = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
        print(f"{zoo.PREFIX}{name}: {size:,} bytes, {published.evaluation['greedy']}")
        if size > MAX_BYTES:
            sys.exit(f"It is larger than {MAX_BYTES:,} bytes: train a smaller network.")
        shutil.rmtree(zoo.FOLDER / name, ignore_errors=True)
        shutil.copytree(made, zoo.FOLDER / name)


def main() -> None:
    """Make one policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="its name after zoo:")
    parser.add_argument("runs", nargs="+", type=Path, help="run directories of complete trainings")
    parser.add_argument("--unseen", default="", metavar="KEY=VALUE,...", help="parameters of the environment of the evaluation")
    arguments = parser.parse_args()
    pairs = [pair.partition("=") for pair in arguments.unseen.split(",") if pair]
    make(arguments.name, arguments.runs, {key: value for key, _, value in pairs})


if __name__ == "__main__":
    main()
