"""Describes this machine's processor and memory, without torch."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from contextlib import suppress
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_STAT = Path("/proc/stat")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_PROCESSORS = Path("/sys/devices/system/cpu")
_CACHES = _PROCESSORS / "cpu0" / "cache"


def describe() -> str:
    """Return the processor's name and the number of threads that this process may use: `Intel(R) Xeon(R) Processor, 2
    threads`."""
    count = threads()
    return f"{_processor()}, {count} thread{'' if count == 1 else 's'}"


def threads() -> int:
    """Return the number of hardware threads that this process may use."""
    return len(processors())


def processors(thread: int = 0) -> set[int]:
    """Return the processors on which a thread may run, by default this thread. All processors if the kernel does not
    say (macOS).

    Raises ProcessLookupError and PermissionError.
    """
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(thread)
    return set(range(os.cpu_count() or 1))


def pin(thread: int, to: set[int]) -> None:
    """Let a thread run on these processors only. No effect if the kernel does not support it (macOS).

    Raises ProcessLookupError and PermissionError.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(thread, to)


def busy_ticks() -> int:
    """Return the number of ticks since boot in which the processors that this process may use were not idle.

    Time that the hypervisor gave to other machines counts as busy. Raises OSError or ValueError if the kernel does not
    report it.
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
    """Return the processors (hyperthreads) of the core on which this thread runs. Empty if the kernel does not report
    them."""
    with suppress(OSError, IndexError, ValueError):
        number = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36]
        listed = (_PROCESSORS / f"cpu{number}" / "topology" / "thread_siblings_list").read_text()
        bounds = [part.partition("-") for part in listed.strip().split(",")]
        return frozenset(one for low, _, high in bounds for one in range(int(low), int(high or low) + 1))
    return frozenset()


def available_memory() -> int:
    """Return the bytes that new processes can use without swapping. Half of all memory if the kernel does not say
    (macOS)."""
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


def caches() -> list[int]:
    """Return the sizes in bytes of one core's caches, from the first level to the last. Empty if the kernel does not
    report them."""
    sizes = []
    for file in _CACHES.glob("index*/size"):
        found = re.fullmatch(r"(\d+)([KMG]?)", file.read_text().strip())
        if found:
            sizes.append(int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]])
    return sorted(sizes)


MATRIX_UNIT = "amx_bf16"
"""Name of the feature of processors that multiply tiles of bfloat16 numbers."""
SHORT_REGISTERS = "asimd"
"""Name of the feature of processors whose vector registers have only 16 bytes."""


def features() -> frozenset[str]:
    """Return the processor's instruction sets by the kernel's names, such as `avx512f`, `amx_bf16` or `asimd`. Empty if
    the kernel lists none."""
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
    # On Arm the kernel gives numbers instead of a name.
    if "CPU part" in fields:
        return f"{platform.machine()} implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    return platform.processor() or platform.machine()
