"""Imports JAX before workers are forked from this process. No backend is opened, because that would start threads."""

from __future__ import annotations

import warnings


def preload() -> None:
    """Import the modules that every program needs. Raises ImportError without JAX."""
    import jax.experimental.pallas
    import jax.experimental.pallas.tpu
    import jax.export  # noqa: F401 - imported for the workers

    # JAX warns that a fork would copy its threads, but there are none before a backend is opened
    warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
