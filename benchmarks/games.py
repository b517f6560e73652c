"""Self-play in games of pgx. Tic-tac-toe: results of the greedy policy against all sequences of replies. Connect four: results of 1,000 games with
sampled moves against random moves, and of 1,000 against the checkpoint after a tenth of the training.

python benchmarks/games.py tic_tac_toe       # minutes; adds to results/games.json
python benchmarks/games.py connect_four      # half an hour for each seed
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import proximo

RESULTS = Path(__file__).parent / "results" / "games.json"
SIDES = ("first", "second")
SETTINGS: dict[str, dict[str, Any]] = {
    "tic_tac_toe": {"total_steps": 4_000_000, "num_envs": 256, "num_steps": 16, "gamma": 1.0, "ent_coef": 0.1},
    "connect_four": {
        "total_steps": 10_000_000, "num_envs": 256, "num_steps": 32, "gamma": 1.0, "ent_coef": "linear(0.1, 0.01)", "hidden_sizes": (128, 128),
    },
}  # fmt: skip


def results_of_all_replies(policy: proximo.Policy, side: str) -> dict[str, int]:
    """The results of tic-tac-toe with the most probable moves of ``policy`` against every sequence of replies."""
    import pgx

    game = pgx.make("tic_tac_toe")
    step = jax.jit(jax.vmap(lambda state, move: game.step(state, move)))
    start = game.init(jax.random.key_data(jax.random.key(0)))
    player = int(start.current_player) if side == "first" else 1 - int(start.current_player)
    states, own_turn, found = jax.tree.map(lambda x: x[None], start), side == "first", {"won": 0, "drawn": 0, "lost": 0}
    while len(states.current_player):
        legal = np.asarray(states.legal_action_mask)
        if own_turn:
            moves, _ = policy.predict({"observation": np.asarray(states.observation, np.float32), "action_mask": legal})
        else:
            parents, moves = np.nonzero(legal)
            states = jax.tree.map(lambda x, parents=parents: x[parents], states)
        states = step(states, jnp.asarray(moves, jnp.int32))
        over, gained = np.asarray(states.terminated), np.asarray(states.rewards)[:, player]
        for name, sign in (("won", 1), ("drawn", 0), ("lost", -1)):
            found[name] += int((np.sign(gained[over]) == sign).sum())
        running = np.flatnonzero(~over)
        states = jax.tree.map(lambda x, running=running: x[running], states)
        own_turn = not own_turn
    return found


def tic_tac_toe(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train, and try all replies."""
    policy = proximo.PPO("pgx:tic_tac_toe", seed=seed, **settings).learn(settings["total_steps"]).policy
    return {side: results_of_all_replies(policy, side) for side in SIDES}


def connect_four(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train, and play 500 sampled games on each side."""
    with tempfile.TemporaryDirectory() as folder:
        run = proximo.train(
            "pgx:connect_four",
            seed=seed,
            runs_dir=folder,
            checkpoint_every=settings["total_steps"] // 10,
            keep_checkpoints=20,
            **settings,
        )
        first = min(int(path.name) for path in (run.run_dir / "checkpoints").iterdir() if path.name.isdigit())
        found: dict[str, Any] = {}
        for name, against in (("random", "random"), ("tenth", f"{run.run_dir}@{first}")):
            rates = [
                proximo.evaluate(run.run_dir, 500, deterministic=False, env_settings={"side": side}, against=against).summary()
                for side in SIDES
            ]
            found[name] = {rate: float(np.mean([x[rate] for x in rates])) for rate in ("win_rate", "draw_rate", "loss_rate")}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("game", choices=SETTINGS)
    parser.add_argument("--seeds", type=lambda text: [int(x) for x in text.split(",")], default=[20, 21, 22])
    parser.add_argument("--settings", type=json.loads, default={}, help="other settings, as JSON: results are printed only")
    options = parser.parse_args()
    settings = {**SETTINGS[options.game], **options.settings}
    for seed in options.seeds:
        result = {"tic_tac_toe": tic_tac_toe, "connect_four": connect_four}[options.game](seed, settings)
        print(options.game, seed, result, flush=True)
        if not options.settings:
            record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            of_game = record.setdefault(options.game, {"settings": {**settings}, "seeds": {}})
            of_game["seeds"][str(seed)] = result
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")
