"""Describes this machine's processor and memory, and flushes its caches, without torch."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.records import CacheLevel

if TYPE_CHECKING:
    import numpy as np

_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_PROCESSORS = Path("/sys/devices/system/cpu")


def describe() -> str:
    """Return the processor's name and the number of threads that this process may use: `Intel(R) Xeon(R) Processor, 2
    threads`."""
    count = threads()
    return f"{_processor()}, {count} thread{'' if count == 1 else 's'}"


def threads() -> int:
    """Return the number of hardware threads that this process may use."""
    return len(processors())


def processors(thread: int = 0) -> set[int]:
    """Return the processors on which a thread may run, by default this thread. All processors if the operating system
    does not say (macOS).

    Raises ProcessLookupError if the thread has ended, and PermissionError if it belongs to another user.
    """
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(thread)
    return set(range(os.cpu_count() or 1))


def pin(thread: int, to: set[int]) -> None:
    """Let a thread run on these processors only. No effect if the operating system does not support it
    (macOS).

    Raises ProcessLookupError if the thread has ended, and PermissionError if it belongs to another user.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(thread, to)


def busy_ticks() -> int:
    """Return the number of ticks since boot in which the processors that this process may use were not idle.

    Time that the hypervisor gave to other machines counts as busy. Raises OSError or ValueError if the operating
    system does not report it.
    """
    usable = {f"cpu{number}" for number in processors()}
    total = 0
    for line in _STAT.read_text().splitlines():
        name, *ticks = line.split()
        if name in usable:
            user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
            total += user + nice + system + irq + softirq + steal
    return total


def core() -> frozenset[int]:
    """Return the hardware threads of the processor core on which this thread runs. Empty if the operating system does
    not report them."""
    with suppress(OSError, IndexError, ValueError):
        number = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36]
        return _siblings(int(number))
    return frozenset()


def _siblings(processor: int) -> frozenset[int]:
    """Return the hardware threads of the core to which a processor belongs. Raises OSError or ValueError if the
    operating system does not report them."""
    return _numbers((_PROCESSORS / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text())


def _numbers(listed: str) -> frozenset[int]:
    """Return the processors of a list such as `0-3,8`. Raises ValueError for another text."""
    bounds = [part.partition("-") for part in listed.strip().split(",")]
    return frozenset(one for low, _, high in bounds for one in range(int(low), int(high or low) + 1))


def available_memory() -> int:
    """Return the bytes that new processes can use without swapping. Half of all memory if the operating system
    does not say (macOS)."""
    with suppress(OSError, IndexError, ValueError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return min(int(line.split()[1]) << 10, _of_the_cgroup())
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def trim_memory() -> None:
    """Give memory that the C library keeps cached back to the system, if the C library supports that (glibc)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _of_the_cgroup() -> int:
    """Return the bytes that the container's memory limit leaves. Without a limit, a number larger than any machine
    has."""
    with suppress(OSError, ValueError):
        most, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        return max(0, most - used)
    return 1 << 62


def cache_levels() -> list[CacheLevel]:
    """Return the data caches of the first core that this process may use, the first level first. Empty if the
    operating system does not report them."""
    usable = processors()
    found = []
    for folder in (_PROCESSORS / f"cpu{min(usable)}" / "cache").glob("index*"):
        with suppress(OSError, ValueError):
            kind, size, level, shared = (
                (folder / name).read_text().strip() for name in ("type", "size", "level", "shared_cpu_list")
            )
            sized = re.fullmatch(r"(\d+)([KMG]?)", size)
            if kind != "Instruction" and sized:
                room = int(sized[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[sized[2]]
                threads = max(1, len(usable & _numbers(shared)))
                count = max(1, len(usable) // threads)
                found.append(CacheLevel(level=int(level), bytes=room, threads=threads, count=count))
    return sorted(found, key=lambda cache: cache.level)


def caches() -> list[int]:
    """Return the sizes in bytes of one core's data caches, from the first level to the last. Empty if the operating
    system does not report them."""
    return [cache.bytes for cache in cache_levels()]


def cores() -> int | None:
    """Return the number of cores to which the hardware threads of this process belong. None if the operating
    system does not report them."""
    with suppress(OSError, ValueError):
        return len({_siblings(number) for number in processors()})
    return None


def most_hertz() -> float | None:
    """Return the highest clock rate of a core that the operating system reports. None if it reports none, as in many
    virtual machines."""
    with suppress(OSError, ValueError):
        return 1e3 * int((_PROCESSORS / f"cpu{min(processors())}" / "cpufreq" / "cpuinfo_max_freq").read_text())
    return None


_VECTOR_BYTES = {"avx512f": 64, "avx": 32, "sse": 16, "asimd": 16, "neon": 16}
"""Bytes of a vector register, by Linux's name of the instruction set, the widest first."""
_GET_SVE_LENGTH, _SVE_LENGTH = 51, 0xFFFF
"""Number of the prctl that asks for the length of Arm's scalable vectors, and the bits of its answer that hold it."""


def vector_registers() -> tuple[int, str] | None:
    """Return the bytes of the processor's widest vector registers and the name of their instruction set. None if the
    operating system lists no instruction set."""
    present = features()
    if "sve" in present:
        with suppress(AttributeError, OSError):
            length = ctypes.CDLL(None).prctl(_GET_SVE_LENGTH, 0, 0, 0, 0)
            if length > 0:
                return length & _SVE_LENGTH, "sve"
    return next(((size, name) for name, size in _VECTOR_BYTES.items() if name in present), None)


MATRIX_UNIT = "amx_bf16"
"""Name of the feature of processors that multiply tiles of bfloat16 numbers."""
SHORT_REGISTERS = "asimd"
"""Name of the feature of processors whose vector registers have only 16 bytes."""


def features() -> frozenset[str]:
    """Return the processor's instruction sets by Linux's names, such as `avx512f`, `amx_bf16` or `asimd`. Empty if the
    operating system lists none."""
    fields = _fields()
    return frozenset(f"{fields.get('flags', '')} {fields.get('Features', '')}".split())


def _fields() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo."""
    fields: dict[str, str] = {}
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    return fields


def _processor() -> str:
    fields = _fields()
    if fields.get("model name"):
        return fields["model name"]
    # On Arm, Linux gives numbers instead of a name.
    if "CPU part" in fields:
        return f"{platform.machine()} implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    return platform.processor() or platform.machine()


class HostFlush:
    """Evicts earlier data from the caches of all processors that this process may use.

    A core's own caches are shared by all processes on that core. So a process can flush them for another process that
    is stopped, from a thread on each processor.
    """

    def __init__(self, size: int) -> None:
        """`size` is the number of bytes that all processors together read and write."""
        self._size = size

    def run(self) -> None:
        """Read and write the buffer, an equal part on each processor. No thread is left afterwards."""
        import numpy as np

        numbers = sorted(processors())
        parts = np.array_split(self._buffer, len(numbers))
        # threads of Python, which sleep when they are done: threads of OpenMP would go on spinning beside a timed block
        with ThreadPoolExecutor(len(numbers)) as pool:
            list(pool.map(_rewrite, numbers, parts))

    @cached_property
    def _buffer(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        import numpy as np

        return np.zeros(self._size, dtype=np.uint8)


def _rewrite(processor: int, part: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
    """Read and write a part of the buffer on one processor, in a thread that ends soon."""
    pin(0, {processor})
    part += 1  # a plain fill may bypass the caches
