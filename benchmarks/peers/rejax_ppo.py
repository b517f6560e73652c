"""Training speed of rejax's feed-forward PPO on CartPole-v1.

    python rejax_ppo.py [--num-envs 4|64]

Needs an environment of its own: rejax 0.1.3 asks for gymnax >= 0.0.9 but unpacks the five-value step that gymnax 1.0
removed, so gymnax must be 0.0.9. With that pin it runs unmended on jax 0.10.2 (see README.md).

Evaluation costs nothing here: rejax evaluates after every `eval_freq` steps and once before the first, on 128
environments to the end of their episodes. The initial one is off by its own setting, `eval_freq` is the whole training,
and `eval_callback`, the field meant for the user's own evaluation, returns nothing while the clock runs. Its original
callback gives `return_mean_last` afterwards.

What rejax has no setting for stays as it is: two networks and two optimisers in place of one, a constant learning rate,
`max_grad_norm` as an element-wise clip, Adam epsilon 1e-8, flax's default initialisers. Its value clip is always on.
NPROC=4 (see timing.py).
"""

import argparse

from timing import compile_train, report, time_repeats, versions_of, whole_updates  # isort: skip (before JAX)

import jax
from rejax import PPO

CONFIG = {
    "env": "CartPole-v1",
    "agent_kwargs": {"activation": "tanh", "hidden_layer_sizes": [64, 64]},
    "num_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": 2.5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "skip_initial_evaluation": True,
}
DEFAULT_STEPS = 786_432  # a repeat of four or five seconds on two cores


def parse_arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Training speed of rejax's PPO on CartPole-v1.")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--total-steps", type=int, default=DEFAULT_STEPS, help="environment steps of one training")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    """Compile, warm up, time, evaluate the last policy, report."""
    args = parse_arguments()
    total_steps = whole_updates(args.total_steps, args.num_envs * CONFIG["num_steps"])
    config = CONFIG | {"num_envs": args.num_envs, "total_timesteps": total_steps, "eval_freq": total_steps}
    evaluated = PPO.create(**config)
    silent = evaluated.replace(eval_callback=lambda algorithm, train_state, key: ())

    def train(key):
        train_state, _ = silent.train(key)
        return train_state

    compiled, compile_seconds = compile_train(train, args.seed)
    rates, train_state = time_repeats(compiled, total_steps, args.repeats, args.seed)
    _, returns = evaluated.eval_callback(evaluated, train_state, jax.random.PRNGKey(args.seed))
    versions = versions_of("jax", "jaxlib", "flax", "optax", "gymnax", "distrax", "rejax")
    report("rejax", versions, config | {"seed": args.seed}, compile_seconds, rates, float(returns.mean()))


if __name__ == "__main__":
    main()
