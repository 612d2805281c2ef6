"""Reads exports of Nsight Systems: `nsys stats --format csv`, one report in a file or several with text between them.

Four summaries are read. They contain neither calls of the module nor the time between two kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kforge.errors import ProfileError
from kforge.profiling import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOL = "Nsight Systems"
MAX_NAME = 200

_DRIVER = re.compile(r"cu(?:da)?[A-Z]")
"""Matches names of CUDA driver and runtime functions. The summary of system calls has the same columns."""
_UNIT = re.compile(r"Total(?: Time)? \((\w+)\)")


@dataclass(frozen=True)
class Row:
    """One line of a summary."""

    name: str
    count: int
    amount: float
    """Seconds; in the summary of sizes, bytes."""


@dataclass
class Summaries:
    """The rows of each report. A report may be missing."""

    kernels: list[Row] = field(default_factory=list)
    copies: list[Row] = field(default_factory=list)
    """Copies with their seconds."""
    sizes: list[Row] = field(default_factory=list)
    """Copies with their bytes."""
    calls: list[Row] = field(default_factory=list)
    """Calls of the CUDA API by the host."""

    def __bool__(self) -> bool:
        return bool(self.kernels or self.copies or self.sizes or self.calls)


_COUNTS = ("Instances", "Num Calls", "Count", "Operations")
"""Names of the column with the number of calls."""


def _kind(header: Sequence[str]) -> str | None:
    """Return which summary has these columns: the name of a field of `Summaries`, or None."""
    total = next((name for name in header if name.startswith("Total")), None)
    if total is None:
        return None
    if header[-1] == "Operation":
        return "copies" if total.startswith("Total Time") else "sizes"
    if header[-1] == "Name" and "Instances" in header:
        return "kernels"
    return "calls" if header[-1] == "Name" and "Num Calls" in header else None


def is_header(line: str) -> bool:
    """Return whether a line is the header of a summary."""
    return line.lstrip("\ufeff").replace('"', "").startswith(("Time (%),", "Time(%),", "Total (", "Total,"))


def read(lines: Sequence[str]) -> Summaries:
    """Return the summaries in a file. Raises ProfileError if there is none, or if all are empty."""
    found, known = Summaries(), False
    at = [index for index, line in enumerate(lines) if is_header(line)]
    for start, end in zip(at, [*at[1:], len(lines)], strict=True):
        table = tables.rows([lines[start].lstrip("\ufeff"), *lines[start + 1 : end]])
        header = [cell.strip() for cell in next(table, [])]
        kind = _kind(header)
        if kind is None:
            continue
        known = True
        for row in table:
            if len(row) < len(header):  # text that is printed before the next report
                break
            if (read_row := _row(header, row)) is not None and (kind != "calls" or _DRIVER.match(read_row.name)):
                getattr(found, kind).append(read_row)
    if not known:
        raise ProfileError(
            "it holds none of the reports of `nsys stats` that kforge reads: "
            "cuda_gpu_kern_sum, cuda_gpu_mem_time_sum, cuda_gpu_mem_size_sum, cuda_api_sum"
        )
    if not found:
        raise ProfileError("its summaries are empty: nothing of the device was recorded")
    return found


def _row(header: Sequence[str], row: Sequence[str]) -> Row | None:
    """Return one line of a summary; None if it has no value."""
    total = next(index for index, name in enumerate(header) if name.startswith("Total"))
    count = next((index for index, name in enumerate(header) if name in _COUNTS), None)
    unit = _UNIT.match(header[total])
    amount = tables.plain_number(row[total])
    if amount is None or count is None:
        return None
    name = ",".join(row[len(header) - 1 :])  # some versions do not quote a name with commas in it
    times = tables.plain_number(row[count]) or 0
    return Row(" ".join(name.split())[:MAX_NAME], int(times), amount * tables.scale(unit[1] if unit else ""))
