"""Imports JAX before workers are forked from this process. No backend is opened: that would start threads."""

from __future__ import annotations

import warnings


def preload() -> None:
    """Import what every program needs. Raises ImportError without JAX."""
    import jax.experimental.pallas
    import jax.experimental.pallas.tpu
    import jax.export  # noqa: F401 - imported for the workers

    # it says that a fork would copy JAX's threads; none is there before a backend is opened
    warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
