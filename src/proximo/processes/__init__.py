"""Several processes that train together, on one machine or on several.

Every process runs the same training on its own devices, and all devices form one mesh. Process 0 writes the
run directory. ``join`` connects the processes, ``current`` returns them.
"""

from proximo.processes.joining import join
from proximo.processes.peers import Peers, current

__all__ = ["Peers", "current", "join"]
