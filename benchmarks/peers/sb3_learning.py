"""What sb3.py and sb3_recurrent.py share: threads, and the timing of SB3's ``learn``."""

import importlib.metadata
import os
import platform
import time


def limit_threads(count):
    """Let PyTorch compute with `count` threads; to be called before anything else imports it."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)
    import torch

    torch.set_num_threads(count)


def name_of(title, threads):
    """How the report calls the peer."""
    return f"{title}, {threads} thread{'s' if threads > 1 else ''}"


def time_learning(model, options):
    """Warm up by one rollout and its update, let a second one tell how many fill ``--seconds``, and time those.

    Returns the rows of the report that both programs have: settings, parameters, steps per second, seconds until warm.
    """
    rows = options.num_envs * options.num_steps

    def learn(updates):
        begun = time.perf_counter()
        model.learn(updates * rows, reset_num_timesteps=model.num_timesteps == 0)
        return time.perf_counter() - begun

    warm = learn(1)
    updates = max(1, round(options.seconds / learn(1)))
    seconds = [learn(updates) for _ in range(options.repeats)]
    returns = [episode["r"] for episode in model.ep_info_buffer or []]
    return {
        "settings": {**vars(options), "updates": updates, "policy": type(model.policy).__name__},
        "parameters": sum(p.numel() for p in model.policy.parameters()),
        "first_update_seconds": round(warm, 2),
        "steps_per_second": [round(updates * rows / one, 1) for one in seconds],
        "return_mean_last": sum(returns) / len(returns) if returns else None,
    }


def versions_of(*packages):
    """Return Python's version and those of the packages."""
    return {package: importlib.metadata.version(package) for package in packages} | {"python": platform.python_version()}
