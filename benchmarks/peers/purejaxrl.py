"""Training speed of PureJaxRL's PPO: feed-forward (`ppo.py`) or recurrent (`ppo_rnn.py`) on CartPole-v1, continuous on Brax's ant.

    python purejaxrl.py --repo PATH [--num-envs 4|64] [--recurrent | --ant]

PATH is a checkout of github.com/luchris429/purejaxrl. Its source is imported from there, not copied, and mended in
memory where today's packages need it; the file on disk is not touched. The mends, each meant to change no arithmetic:

- `navix`, which their wrappers.py imports for environments not used here, becomes an empty stand-in; so does `brax` without --ant.
- `chex` (annotations only) and `distrax` (two distributions) become stand-ins where they are not installed.
- `gymnax.make` gives an environment with the five-value step of gymnax 0.0.x: done = terminated or truncated, and
  without the `info` entries that gymnax 1.0 added, which their program would otherwise store, shuffle and return.
- `flax.linen.GRUCell` takes its former arguments.
- TOTAL_TIMESTEPS is an int: today's `lax.scan` refuses the float length that comes from 5e5.

DEBUG is off, so there are no callbacks. As in their program, the log of every step is an output of the jitted function;
only the last updates of the last repeat are read from it, after the clock has stopped.
NPROC=4 (see timing.py).
"""

import argparse
import importlib
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

from timing import compile_train, report, time_repeats, versions_of, whole_updates  # isort: skip (before JAX)

import flax.linen
import gymnax
import jax
import jax.numpy as jnp

CONFIG = {
    "LR": 2.5e-4,
    "NUM_STEPS": 128,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
    "DEBUG": False,
}
ANT = {
    "LR": 3e-4,
    "NUM_STEPS": 10,
    "NUM_MINIBATCHES": 32,
    "ENT_COEF": 0.0,
    "ENV_NAME": "ant",
    "ANNEAL_LR": False,
    "NORMALIZE_ENV": True,
}
"""The settings of their ppo_continuous_action.py, where they differ from CONFIG."""
DEFAULT_STEPS = {False: 786_432, True: 98_304}  # by --recurrent: a repeat of four or five seconds on two cores
LAST_UPDATES = 5


class Categorical:
    """Stand-in for `distrax.Categorical(logits)`, with the operations of distrax 0.1.9 so that it costs the same."""

    def __init__(self, logits):
        self.logits = jax.nn.log_softmax(logits)

    def sample(self, seed):
        """Draw one category per distribution; -1 where the probabilities are not finite."""
        probs = jax.nn.softmax(self.logits)
        valid = jnp.all(jnp.isfinite(probs), axis=-1) & jnp.all(probs >= 0, axis=-1)
        return jnp.where(valid, jax.random.categorical(seed, self.logits), -1)

    def log_prob(self, value):
        """Log-probability of `value`; minus infinity outside the categories."""
        num_categories = self.logits.shape[-1]
        one_hot = jax.nn.one_hot(value, num_categories, dtype=self.logits.dtype)
        log_prob = jnp.sum(jnp.where(one_hot == 0, 0.0, self.logits * one_hot), axis=-1)
        return jnp.where((value < 0) | (value >= num_categories), -jnp.inf, log_prob)

    def entropy(self):
        """Entropy in nats."""
        log_probs = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.where(log_probs == -jnp.inf, 0.0, jnp.exp(log_probs) * log_probs), axis=-1)


class MultivariateNormalDiag:
    """Stand-in for `distrax.MultivariateNormalDiag(mean, deviation)`."""

    def __init__(self, mean, deviation):
        self.mean, self.deviation = mean, jnp.broadcast_to(deviation, mean.shape)

    def sample(self, seed):
        """Draw one vector per distribution."""
        return self.mean + self.deviation * jax.random.normal(seed, self.mean.shape, self.mean.dtype)

    def log_prob(self, value):
        """Log-density of `value`."""
        return jax.scipy.stats.norm.logpdf(value, self.mean, self.deviation).sum(-1)

    def entropy(self):
        """Entropy in nats."""
        return jnp.sum(0.5 + 0.5 * jnp.log(2 * jnp.pi) + jnp.log(self.deviation), axis=-1)


class FiveValueStep:
    """A gymnax 1.0 environment with the `step` of gymnax 0.0.x."""

    def __init__(self, env):
        self._env = env

    def __getattr__(self, name):
        return getattr(self._env, name)

    def step(self, key, state, action, params):
        """Return (observation, state, reward, done, info) with `discount` alone in info, as before 1.0."""
        observation, state, reward, terminated, truncated, info = self._env.step(key, state, action, params)
        return observation, state, reward, terminated | truncated, {"discount": info["discount"]}


class FormerGRUCell:
    """`flax.linen.GRUCell` under its former signature: no features at construction, a static initialize_carry."""

    def __call__(self):
        return lambda carry, inputs: flax.linen.GRUCell(features=carry.shape[-1])(carry, inputs)

    @staticmethod
    def initialize_carry(_key, batch_dims, size):
        """Return zeros of shape (*batch_dims, size)."""
        return jnp.zeros((*batch_dims, size))


def overlay(module, **replacements):
    """Return a copy of `module` in which some names are replaced."""
    copy = types.ModuleType(module.__name__)
    vars(copy).update(vars(module) | replacements)
    return copy


def put_stand_ins(needs_brax):
    """Put stand-ins for the modules that PureJaxRL imports and that are not needed or not installed."""
    sys.modules["navix"] = types.ModuleType("navix")
    if not needs_brax:
        for name in ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training"):
            sys.modules[name] = types.ModuleType(name)
        sys.modules["brax"].envs = sys.modules["brax.envs"]
        training = sys.modules["brax.envs.wrappers.training"]
        training.EpisodeWrapper = training.AutoResetWrapper = None
    distributions = {"Categorical": Categorical, "MultivariateNormalDiag": MultivariateNormalDiag}
    optional = {"chex": {"Array": jax.Array, "PRNGKey": jax.Array}, "distrax": distributions}
    for name, contents in optional.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = overlay(types.ModuleType(name), **contents)


def load_program(repo, name):
    """Import PureJaxRL's `name`.py from `repo` and mend the names that it looks up in other packages."""
    source = Path(repo) / "purejaxrl"
    if not (source / f"{name}.py").is_file():
        raise FileNotFoundError(f"--repo is {repo}, but {source / name}.py is not there: give a checkout's root.")
    put_stand_ins(needs_brax=name == "ppo_continuous_action")
    sys.path.insert(0, str(source))
    program = importlib.import_module(name)

    def make(env_name):
        env, env_params = gymnax.make(env_name)
        return FiveValueStep(env), env_params

    program.gymnax = overlay(gymnax, make=make)
    program.nn = overlay(flax.linen, GRUCell=FormerGRUCell())
    return program


def return_mean_of(metrics):
    """Mean return of the episodes that ended in the last updates; None if none ended."""
    returns = metrics["returned_episode_returns"][-LAST_UPDATES:]
    ended = metrics["returned_episode"][-LAST_UPDATES:]
    count = int(ended.sum())
    return float((returns * ended).sum() / count) if count else None


def commit_of(repo):
    """Commit of the checkout; None if it is an unpacked archive."""
    if not (Path(repo) / ".git").exists():
        return None
    return subprocess.check_output(["git", "-C", repo, "rev-parse", "HEAD"], text=True).strip()


def parse_arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Training speed of PureJaxRL's PPO on CartPole-v1 or Brax's ant.")
    parser.add_argument("--repo", required=True, help="root of a PureJaxRL checkout")
    parser.add_argument("--num-envs", type=int, default=64)
    programs = parser.add_mutually_exclusive_group()
    programs.add_argument("--recurrent", action="store_true", help="their GRU program, on whole sequences of 128 steps")
    programs.add_argument("--ant", action="store_true", help="their program for continuous actions, on Brax's ant")
    parser.add_argument("--total-steps", type=int, help="environment steps of one training")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    """Compile, warm up, time, report."""
    args = parse_arguments()
    settings = CONFIG | (ANT if args.ant else {})
    total_steps = whole_updates(args.total_steps or DEFAULT_STEPS[args.recurrent], args.num_envs * settings["NUM_STEPS"])
    config = settings | {"NUM_ENVS": args.num_envs, "TOTAL_TIMESTEPS": total_steps}
    program = load_program(args.repo, "ppo_rnn" if args.recurrent else "ppo_continuous_action" if args.ant else "ppo")
    compiled, compile_seconds = compile_train(program.make_train(dict(config)), args.seed)
    rates, output = time_repeats(compiled, total_steps, args.repeats, args.seed)
    return_mean = return_mean_of(output["metric" if args.recurrent else "metrics"])
    peer = "purejaxrl-recurrent" if args.recurrent else "purejaxrl-ant" if args.ant else "purejaxrl"
    versions = versions_of("jax", "jaxlib", "flax", "optax", "gymnax", "distrax")
    versions |= {"purejaxrl": commit_of(args.repo), "distrax": versions["distrax"] or "stand-in"}
    report(peer, versions, config | {"SEED": args.seed}, compile_seconds, rates, return_mean)


if __name__ == "__main__":
    main()
