"""Whether processes run. Without JAX, because workers import the modules of their tests."""

import time
from pathlib import Path


def state_and_parent(pid):
    """Of a process; its state is Z when it has ended, and empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "", "0"


def alive(pid):
    return state_and_parent(pid)[0] not in ("", "Z")


def gone_within(seconds, pids):
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))
