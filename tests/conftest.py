"""For every test: shapes are checked against their annotations, and compiled programs are kept for the next run."""

from jaxtyping import install_import_hook

# Where the annotations have shapes; the files above them handle no arrays of their own.
SHAPED = ("math", "distributions", "networks", "envs", "ppo", "drivers", "types")
install_import_hook([f"proximo.{name}" for name in SHAPED], "shape_checker.check")

import proximo  # noqa: E402, F401  (before JAX starts: it sets the remedy against the deadlock on few cores)
from proximo.runtime import prepare_jax  # noqa: E402

prepare_jax()
