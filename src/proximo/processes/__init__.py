"""Several processes that train together, on one machine or on several.

Every process runs the same training on its own devices, and all devices form one mesh. Process 0 writes the
run directory. ``join`` connects the processes, ``current`` returns them.
"""

from proximo.lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
LAUNCHER = "PROXIMO_LAUNCHER"
"""The environment variable with the process id of ``proximo launch``, with which its processes end."""
