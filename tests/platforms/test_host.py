"""What the kernel tells about the processor."""

import os
import subprocess
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


AS_ON_MACOS = """
import os
import subprocess
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open"):
    delattr(os, name)

from kforge.evaluation import judge
from kforge.evaluation.processes import freeze, launch
from kforge.platforms import host

assert host.threads() == len(host.processors()) == os.cpu_count()
assert "thread" in host.describe()
freeze.Spread(os.getpid(), aside=True).end()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="nothing has to be taken away")
def test_threads_stay_where_they_are_where_the_kernel_has_no_affinity() -> None:
    done = subprocess.run([sys.executable, "-c", AS_ON_MACOS], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
