"""Reads the table `metal-gpu-intervals` of Instruments, as `xctrace export` writes it: XML with a row for each
interval.

A value is written once with an `id`, and later rows refer to it by `ref`. The table covers the whole machine, so only
the rows of one process count. The format was taken from public exports. The code was never tried with
an export of a run of kforge.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from kforge.errors import ProfileError
from kforge.profiling.nsight_systems import MAX_NAME, Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

TOOL = "Instruments"
_NEEDED = ("start", "duration", "channel-name", "process")
"""Columns by which the table is recognized."""
_LABELS = ("event-label", "label", "encoder-label", "cmdbuffer-label")
"""Columns that may contain a label of the work, in order of preference."""
_COMPUTE = "Compute"
"""Name of the channel for compute work."""
_OWN = re.compile(r"python", re.IGNORECASE)
"""Matches the names of Python processes."""


class _Interval(NamedTuple):
    """One row: a stretch of GPU work."""

    process: str
    label: str
    channel: str
    seconds: float


def is_export(text: str) -> bool:
    """Return whether a text is an export of xctrace."""
    return "<trace-query-result" in text[:2000] or "<trace-toc" in text[:2000]


def read(text: str) -> tuple[Row, ...]:
    """Return the kernels (or encoders) of the Python process with their seconds. Raises ProfileError if the text is not
    an export of xctrace with the GPU's intervals."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # xctrace writes neither, and entities can grow without bounds
        raise ProfileError("it has a document type, which exports of xctrace do not have")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - without entities there is nothing to expand
    except ElementTree.ParseError as error:
        raise ProfileError(f"it is not whole XML: {error}") from None
    tables = [node for node in root.iter("node") if set(_NEEDED) <= set(_columns(node))]
    if not tables:
        columns = ", ".join(_NEEDED)
        raise ProfileError(
            f"it holds no table of the GPU's intervals with the columns {columns}; the docs say how to export it"
        )
    intervals = [interval for table in tables for interval in _intervals(table)]
    if not intervals:
        raise ProfileError("its table of the GPU's intervals is empty: nothing of the GPU was recorded")
    ours = _of_one_process(intervals)
    compute = [one for one in ours if one.channel == _COMPUTE] or ours
    found: dict[str, list[float]] = defaultdict(list)
    for one in compute:
        found[one.label].append(one.seconds)
    return tuple(Row(label[:MAX_NAME], len(seconds), sum(seconds)) for label, seconds in found.items())


def _columns(node: Element) -> list[str]:
    """Return the names of a table's columns."""
    return [column.findtext("mnemonic", "") for column in node.findall("schema/col")]


def _intervals(table: Element) -> Iterator[_Interval]:
    """Yield the rows of a table. Raises ProfileError for a malformed one."""
    columns = _columns(table)
    known: dict[str, Element] = {}
    for row in table.findall("row"):
        known |= {element.attrib["id"]: element for element in row.iter() if "id" in element.attrib}
        cells = dict(zip(columns, (known.get(cell.get("ref", ""), cell) for cell in row), strict=False))
        if any(name not in cells for name in _NEEDED):
            continue
        try:
            seconds = int(cells["duration"].text or "") / 1e9
        except ValueError:
            raise ProfileError("a duration in its table is no number of nanoseconds") from None
        label = next((said for name in _LABELS if name in cells and (said := _said(cells[name]))), "no label")
        yield _Interval(_said(cells["process"]), label, _said(cells["channel-name"]), seconds)


def _said(cell: Element) -> str:
    """Return what a cell shows: its formatted value, or its text."""
    return " ".join((cell.get("fmt") or cell.text or "").split())


def _of_one_process(intervals: list[_Interval]) -> list[_Interval]:
    """Return the rows of the profiled process: that of Python, or the only one. Raises ProfileError if it is
    unclear."""
    processes = dict.fromkeys(one.process for one in intervals)
    own = [process for process in processes if _OWN.search(process)] or list(processes)
    if len(own) > 1:
        names = ", ".join(sorted(own)[:8])
        raise ProfileError(
            f"{len(own)} processes used the GPU and may be the profiled one ({names}); "
            "record again while only one Python process uses the GPU"
        )
    return [one for one in intervals if one.process == own[0]]
