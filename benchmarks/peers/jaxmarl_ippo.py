"""Trainings of JaxMARL's own IPPO: `ippo_ff_mpe.py` on simple_spread, or `ippo_rnn_smax.py` on HeuristicEnemySMAX.

    python jaxmarl_ippo.py --repo PATH --task mpe|smax [--total-steps N] [--seeds 20,21]

PATH is a checkout of github.com/FLAIROX/JaxMARL. The program is imported from there, not copied; JaxMARL itself is the installed package.
`distrax` becomes the stand-in of `purejaxrl.py` where it is not installed. `hydra`, `omegaconf` and `wandb`, which only start the program and
log its metrics, become empty stand-ins; `wandb.log` keeps the metrics of each update. Settings are those of the YAML files beside the
programs, with the scenario 3m. Compiled ahead of time, one untimed training, then a timed one for each seed.
"""

import argparse
import importlib.util
import sys
import time
import types
from pathlib import Path

from timing import report, versions_of, whole_updates  # isort: skip (before JAX)

import jax
import numpy as np
from purejaxrl import CONFIG, Categorical, commit_of, overlay

TASKS = {
    "mpe": ("ippo_ff_mpe", {**CONFIG, "NUM_ENVS": 16, "ENV_NAME": "MPE_simple_spread_v3", "ENV_KWARGS": {}}),
    "smax": ("ippo_rnn_smax", {
        **CONFIG, "LR": 0.004, "NUM_ENVS": 128, "GRU_HIDDEN_DIM": 128, "FC_DIM_SIZE": 128, "CLIP_EPS": 0.05, "SCALE_CLIP_EPS": False,
        "MAX_GRAD_NORM": 0.25, "ACTIVATION": "relu", "MAP_NAME": "3m",
        "ENV_KWARGS": {"see_enemy_actions": True, "walls_cause_death": True, "attack_mode": "closest"},
    }),
}  # fmt: skip
"""Of each task, the program, and its settings, where they differ from those of PureJaxRL, on which it is based."""


def load_program(repo: str, name: str) -> types.ModuleType:
    """Import ``name.py`` of the baselines, with stand-ins for what only starts it."""
    for module in ("hydra", "omegaconf", "wandb"):
        sys.modules[module] = types.ModuleType(module)
    sys.modules["hydra"].main = lambda **_: lambda function: function
    sys.modules["omegaconf"].OmegaConf = None
    sys.modules["wandb"].log = lambda *_, **__: None
    if importlib.util.find_spec("distrax") is None:
        sys.modules["distrax"] = overlay(types.ModuleType("distrax"), Categorical=Categorical)
    spec = importlib.util.spec_from_file_location(name, Path(repo) / "baselines" / "IPPO" / f"{name}.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program


def curve_of(task: str, output: dict, logged: list[dict]) -> list[float]:
    """After each update, the return of an agent (mpe) or the share of won battles (smax)."""
    if (
        task == "mpe"
    ):  # the means over a rollout of the last finished episodes, whose rewards the wrapper multiplies by the number of agents
        return (np.asarray(output["metrics"]["returned_episode_returns"], float) / 3).round(4).tolist()
    rows = sorted(logged, key=lambda row: int(row["env_step"]))
    return [round(float(np.nan_to_num(row["win_rate"])), 4) for row in rows]


def main():
    """Compile, warm up, train each seed, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repo", required=True, help="root of a JaxMARL checkout")
    parser.add_argument("--task", choices=TASKS, default="mpe")
    parser.add_argument("--total-steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=lambda text: [int(x) for x in text.split(",")], default=[20, 21, 22, 23, 24])
    args = parser.parse_args()
    name, settings = TASKS[args.task]
    steps = whole_updates(args.total_steps, settings["NUM_ENVS"] * settings["NUM_STEPS"])
    program = load_program(args.repo, name)
    train = program.make_train({**settings, "TOTAL_TIMESTEPS": steps})
    start = time.perf_counter()
    compiled = jax.jit(train).lower(jax.random.PRNGKey(0)).compile()
    compile_seconds = time.perf_counter() - start
    jax.block_until_ready(compiled(jax.random.PRNGKey(0)))
    rates, curves, logged = [], [], []
    sys.modules["wandb"].log = logged.append
    for seed in args.seeds:
        key = jax.block_until_ready(jax.random.PRNGKey(seed))
        logged.clear()
        start = time.perf_counter()
        output = jax.block_until_ready(compiled(key))
        rates.append(steps / (time.perf_counter() - start))
        jax.effects_barrier()
        curves.append(curve_of(args.task, output, logged))
    versions = versions_of("jax", "jaxlib", "flax", "optax", "jaxmarl") | {"repository": commit_of(args.repo)}
    report(f"jaxmarl-{args.task}", versions, {**settings, "seeds": args.seeds, "curves": curves}, compile_seconds, rates, None)


if __name__ == "__main__":
    main()
