"""One of several processes without a training: ``member.py ADDRESS COUNT INDEX FAULT``, that of process 1."""

import os
import signal
import sys
import time

from proximo.errors import ConfigError
from proximo.processes import join

HEARTBEAT, START_TIMEOUT = 2.0, 5.0
address, count, index, fault = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
faulty = index == 1
if fault == "late" and faulty:
    time.sleep(60)
try:
    peers = join(address, count, index, HEARTBEAT, START_TIMEOUT)
    with peers.failing_together():
        peers.check_equal(lambda: {"gamma": 0.9 if fault == "another setting" and faulty else 0.99})
        assert [peers.agree([i, peers.index], "a number") for i in range(3)] == [[[i, k] for k in range(count)] for i in range(3)]
        assert peers.from_first(lambda: "yes" if peers.is_first else "no", "an answer") == "yes"
        peers.prepare(lambda number: print(f"asked to stop by {number}", flush=True), "Go on with: this.")
        peers.agree(None, "the first update")
        print("ready", flush=True)
        if faulty and fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if faulty and fault == "raises":
            raise ValueError("no more\nbananas")
        if faulty and fault == "hangs":
            time.sleep(60)
        if index == 0 and fault == "process 0 killed":
            time.sleep(0.5)  # process 1 reports that it is ready
            os.kill(os.getpid(), signal.SIGKILL)
        if faulty and fault == "asked":
            peers.request(signal.SIGTERM)
            time.sleep(1.5)
        peers.agree(None, "the next update")
    peers.finish()
except ConfigError as error:
    print(f"proximo: {error}", file=sys.stderr, flush=True)
    sys.exit(2)
