"""Reads how many registers and how much memory a kernel uses from the assembler's report. No device is needed."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Self

REPORT = "--ptxas-options=-v"
"""The option that makes the assembler print its report."""

_ENTRY = re.compile(r"Compiling entry function '(?P<symbol>[^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_INFO = re.compile(r"^ptxas (?:info|warning)?\s*[:.].*\n?", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """Registers and local memory of one thread, and shared memory of one thread group."""

    registers: int
    static_shared: int
    """Bytes of shared memory per group that the kernel declares itself, without the dynamic part that a launch asks
    for."""
    local: int
    """Bytes of device memory per thread for its stack: arrays with run-time indices, and spilled registers."""
    spill_stores: int
    """Bytes of registers that did not fit and are written to local memory."""
    spill_loads: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields)


def read(log: str) -> dict[str, Resources]:
    """Return the resources of each kernel in an assembler's report, by symbol."""
    found = {}
    # Every entry has a separate paragraph, which begins with its name.
    starts = [*_ENTRY.finditer(log)]
    for start, end in zip(starts, [*(one.start() for one in starts[1:]), len(log)], strict=False):
        text = log[start.end() : end]
        registers, stack, shared = _REGISTERS.search(text), _STACK.search(text), _SHARED.search(text)
        if registers is None:
            continue
        local, stores, loads = map(int, stack.groups()) if stack else (0, 0, 0)
        found[start["symbol"]] = Resources(int(registers[1]), int(shared[1]) if shared else 0, local, stores, loads)
    return found


def without_report(log: str) -> str:
    """Return the compiler's messages without the lines of the report."""
    return _INFO.sub("", log)
