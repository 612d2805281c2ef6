"""Random draws that leave the caller's generators as they were. (torch)"""

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
"""Held while the generators, which all threads share, are seeded."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch (host and current accelerator), `random` and numpy inside the block, and restore them after it.

    Another thread that seeds them waits until then. `seed` is any unsigned 64-bit number; numpy takes its low 32 bits.
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


def generator_states() -> list[bytes]:
    """Return the states of torch's generators (host and current accelerator): a draw changes one of them."""
    states = [torch.default_generator.get_state()]
    if torch.accelerator.is_available():
        states.append(torch.get_device_module().get_rng_state())
    return [bytes(state.numpy()) for state in states]


def seed_generators(seed: int) -> None:
    """Seed torch (host and current accelerator), `random` and numpy, and leave them so."""
    # not torch.manual_seed: it records a traceback for every kind of device that is not there (2 ms)
    torch.default_generator.manual_seed(seed)
    if torch.accelerator.is_available():
        torch.get_device_module().manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
