"""A full disk, simulated by the operating system: it rejects the writes of this process."""

import contextlib
import resource
import signal
import threading


@contextlib.contextmanager
def full_disk(size=0):
    """Limit the files of this process to ``size`` bytes. Do not print inside: pytest writes it to a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


_timers = []


def fill_disk_for(seconds):
    """Make the disk full for ``seconds``, starting now. The test must end with ``wait_for_room``."""
    filled = full_disk()
    filled.__enter__()
    _timers.append(threading.Timer(seconds, filled.__exit__, (None, None, None)))
    _timers[-1].start()


def wait_for_room():
    """Wait until every ``fill_disk_for`` has ended."""
    while _timers:
        _timers.pop().join()
