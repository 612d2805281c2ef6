"""Seeds the random generators of torch, numpy and Python, and restores their states. (torch)"""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_one_at_a_time = threading.RLock()
"""A lock that is held while the generators are seeded, because all threads share them."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch (host and current accelerator), `random` and numpy inside the `with` block, and restore their states
    afterwards.

    Other threads wait until they can seed the generators. `seed` is any unsigned 64-bit number; numpy uses its low 32
    bits.
    """
    devices = [torch.accelerator.current_device_index()] if torch.accelerator.is_available() else []
    with _one_at_a_time, torch.random.fork_rng(devices=devices):
        python_state, numpy_state = random.getstate(), np.random.get_state()
        seed_generators(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Prevent other threads from seeding the generators inside the `with` block, so that only a draw can change
    them."""
    with _one_at_a_time:
        yield


def generator_states() -> list[bytes]:
    """Return the states of torch's generators (host and current accelerator). A draw changes one of them."""
    states = [torch.default_generator.get_state()]
    if torch.accelerator.is_available():
        states.append(torch.get_device_module().get_rng_state())
    return [bytes(state.numpy()) for state in states]


def seed_generators(seed: int) -> None:
    """Seed torch (host and current accelerator), `random` and numpy, without restoring them."""
    # not torch.manual_seed: it takes 2 ms to record a traceback for every kind of device that is missing
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():
        torch.get_device_module().manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
