"""What the kernel tells about the processor."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kforge.platforms import host

SIBLINGS = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")


@pytest.mark.skipif(sys.platform != "linux" or not SIBLINGS.exists(), reason="the kernel tells no cores")
def test_the_core_is_that_of_the_processor_a_thread_is_on() -> None:
    def core_of(processor: int) -> frozenset[int]:
        os.sched_setaffinity(0, {processor})
        return host.core()

    for processor in sorted(os.sched_getaffinity(0)):
        with ThreadPoolExecutor(1) as thread:  # only this thread is pinned, and it ends
            assert processor in thread.submit(core_of, processor).result()
