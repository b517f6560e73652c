"""Peak memory of a process with all its descendants: the proportional set size (PSS) summed over the tree, sampled in a thread.

PSS divides each shared page by the processes that map it, so that nothing counts twice and shared memory counts once. Standard
library only: it runs in the peers' environments too. Linux only; elsewhere, and when it was not started, the peak is None.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path


def descendants(root: int) -> list[int]:
    """``root`` and all processes below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                # The name, in brackets, may hold blanks; the parent's number is the second field behind it.
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def pss(process: int) -> int:
    """Bytes of its proportional set; 0 for one that has ended."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class PeakMemory:
    """The largest sum seen since ``start``, looked at every ``seconds``."""

    def __init__(self, seconds: float = 0.25):
        self.seconds, self.peak, self.processes = seconds, 0, 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> PeakMemory:
        """Begin to look."""
        if Path("/proc/self/smaps_rollup").exists():
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._end.is_set():
            self.look()
            self._end.wait(self.seconds)

    def look(self) -> None:
        """One sample."""
        processes = descendants(os.getpid())
        total = sum(pss(process) for process in processes)
        if total > self.peak:
            self.peak, self.processes = total, len(processes)

    def stop(self) -> dict:
        """What was seen: megabytes, and the processes that they were counted over; empty when nothing was looked at."""
        if self._thread is None:
            return {}
        self._end.set()
        self._thread.join()
        return {"peak_megabytes": round(self.peak / 1e6, 1), "peak_processes": self.processes}
