"""What a test does if the machine was so busy that a measurement claims nothing."""

import os
from typing import NoReturn

import pytest


def give_up(doubt: str) -> NoReturn:
    """Skip the test if the kernel says, too, that the machine is busy, and fail it if not. The other tests alone do not
    make it so."""
    load, processors = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 2.5 * processors:
        pytest.skip(f"other processes use this machine: {load} of them on {processors} processors")
    pytest.fail(f"{doubt}, with {load} processes on {processors} processors")
