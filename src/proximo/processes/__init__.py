"""Several processes that train together, on one machine or on several.

Every process runs the same training on its own devices, and all devices form one mesh (``proximo.collect.devices``). Process 0 writes the
run directory. ``join`` connects the processes. ``current`` returns them: their agreement on what comes next, and their watchdog, which
ends a process if another one is lost.
"""

from proximo.lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, __file__)
LAUNCHER = "PROXIMO_LAUNCHER"
"""The environment variable with the process id of ``proximo launch``. A process that it has started ends when it is gone."""
