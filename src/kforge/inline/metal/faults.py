"""Turns an error that the emulator's runtime found into one line that names the line of the user's source."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from kforge.inline.metal.text import SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_THREE = ctypes.c_uint * 3
OUT_OF_BOUNDS, RACE, DIVERGENT_BARRIER, INDEX, MISALIGNED = range(1, 6)
DIVISION, NO_RETURN, MATRIX, MEMORY_LIMIT, RECURSION = range(6, 11)
THREADGROUP_LIMIT = 32 << 10
_SEVERAL = 2**32 - 1
_ENTRY = 64
"""Size in bytes of the code at the beginning of a function in which its first call is expected."""
_PLACE = re.compile(rf"{re.escape(SOURCE)}:(\d+)")


class Fault(ctypes.Structure):
    """Mirrors the structure `Fault` of runtime/emulator.h."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("write", ctypes.c_int),
        ("other_write", ctypes.c_int),
        ("line", ctypes.c_uint),
        ("column", ctypes.c_uint),
        ("other_line", ctypes.c_uint),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("region", ctypes.c_int),
        ("offset", ctypes.c_int64),
        ("extent", ctypes.c_int64),
        ("size", ctypes.c_uint),
        ("granule", ctypes.c_uint),
        ("thread", _THREE),
        ("group", _THREE),
        ("other_thread", ctypes.c_uint),
        ("other_group", ctypes.c_uint),
        ("number", ctypes.c_int64),
        ("name", ctypes.c_char * 64),
    )


def message(kernel: str, fault: Fault, library: Path, regions: Sequence[str]) -> str:
    """Return the error as one line: `kernel: kernel.metal:12: out of bounds: ...`. `regions` are the names of the
    buffers."""
    # the call at the entry of a function may have no line; an instruction before it then has the function's line
    before = _ENTRY if fault.kind == RECURSION else 0
    line = fault.line or _line(library, *range(fault.pc, max(fault.pc - before, 0) - 1, -1))
    other = fault.other_line or (_line(library, fault.other_pc) if fault.other_pc else 0)
    if fault.kind == RECURSION:
        line = line or other
    return f"{kernel}: {SOURCE}:{line or '?'}: {_words(fault, regions, other)} ({_where(fault)})"


def _words(fault: Fault, regions: Sequence[str], other: int) -> str:
    name = fault.name.decode(errors="replace")
    if fault.kind == OUT_OF_BOUNDS:
        return f"out of bounds: {_access(fault, regions)}"
    if fault.kind == RACE:
        return _race(fault, regions, other)
    if fault.kind == DIVERGENT_BARRIER:
        barrier = "simdgroup_barrier" if fault.number else "threadgroup_barrier"
        elsewhere = f"waits at line {other}" if other else "has returned"
        return f"divergent barrier: {barrier} is not reached by all threads: thread {fault.other_thread} {elsewhere}"
    if fault.kind == INDEX:
        number = fault.number if fault.number < 2**31 or fault.number >= 2**32 else fault.number - 2**32
        return f"out of bounds: index {number} is outside of the array"
    if fault.kind == MISALIGNED:
        return f"misaligned access: the address is not a multiple of {fault.number} bytes"
    return {
        DIVISION: "integer division by zero, or overflow of a division",
        RECURSION: "the stack of a thread is full: Metal allows no recursion, and no arrays of that size",
        NO_RETURN: "a function that must return a value ended without return",
        MATRIX: f"simdgroup_matrix: all 32 threads of the simdgroup must take part, got {fault.number}",
        MEMORY_LIMIT: f"threadgroup memory: {name} makes {fault.number} bytes, the limit is {THREADGROUP_LIMIT}",
    }[fault.kind]


def _access(fault: Fault, regions: Sequence[str]) -> str:
    verb = "write" if fault.write else "read"
    granule = fault.granule or 1
    if fault.region == -2:
        return f"{verb} of {fault.size} bytes at an address outside of the kernel's memory"
    name = f"threadgroup memory {fault.name.decode()}" if fault.region == -1 else f"buffer {regions[fault.region]}"
    return f"{verb} at index {fault.offset // granule} of {name}, which has {fault.extent // granule} elements"


def _race(fault: Fault, regions: Sequence[str], other: int) -> str:
    memory = f"threadgroup memory {fault.name.decode()}" if fault.region == -1 else f"buffer {regions[fault.region]}"
    index = fault.offset // (fault.granule or 1)
    who = "other threads" if fault.other_thread == _SEVERAL else f"thread {fault.other_thread}"
    if fault.other_group != _SEVERAL:
        who += " of another threadgroup"
    theirs = "write" if fault.other_write else "read"
    ours = "writes" if fault.write else "reads"
    line = f" at line {other}" if other else ""
    plural = "s" if who.startswith("thread") else ""
    return (
        f"race (missing barrier?): {ours} index {index} of {memory}, and {who} {theirs}{plural} it{line} "
        "with no barrier between"
    )


def _where(fault: Fault) -> str:
    return f"thread {tuple(fault.thread)} of threadgroup {tuple(fault.group)}"


def _line(library: Path, *offsets: int) -> int:
    """Return the source line of the first of these code offsets for which the debug information has one. 0 if there is
    none."""
    tool = shutil.which("addr2line") or shutil.which("llvm-symbolizer")
    if tool is None:
        return 0
    places = [hex(offset) for offset in offsets]
    command = (
        [tool, "-i", "-e", str(library), *places]
        if tool.endswith("addr2line")
        else [tool, "-i", f"--obj={library}", *places]
    )
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    found = _PLACE.search(answer.stdout)
    return int(found[1]) if found else 0
