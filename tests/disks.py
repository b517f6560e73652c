"""A disk that is full, for real: the system refuses what this process writes."""

import contextlib
import resource
import signal
import threading


@contextlib.contextmanager
def full_disk(size=0):
    """No file of this process grows beyond ``size`` bytes. Nothing may be printed meanwhile: pytest's capture writes a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


_timers = []


def fill_disk_for(seconds):
    """The disk is full from now on, and has room again after ``seconds``; a test ends with ``wait_for_room``."""
    stack = contextlib.ExitStack()
    stack.enter_context(full_disk())
    _timers.append(threading.Timer(seconds, stack.close))
    _timers[-1].start()


def wait_for_room():
    """Until every ``fill_disk_for`` is over."""
    while _timers:
        _timers.pop().join()
