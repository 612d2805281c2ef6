"""Finds the reader for a suite: readers of installed packages are tried first, then those of kforge."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, NamedTuple

from kforge.errors import ProblemError
from kforge.problems.readers.gpu_mode import GpuModeReader
from kforge.problems.readers.kernelbench import KernelBenchReader
from kforge.problems.readers.multikernelbench import MultiKernelBenchReader
from kforge.problems.readers.own import OwnReader
from kforge.problems.readers.protocol import SuiteReader
from kforge.problems.readers.robust_kbench import RobustKbenchReader
from kforge.problems.readers.trace.reader import FlashInferTraceReader, SolExecBenchReader
from kforge.problems.readers.writing import reason_of

if TYPE_CHECKING:
    from pathlib import Path

ENTRY_POINT_GROUP = "kforge.suites"
"""Entry points of this group name an object, or a class without arguments, with the methods of `SuiteReader`."""
OWN = OwnReader()
BUILT_IN: tuple[SuiteReader, ...] = (
    FlashInferTraceReader(), SolExecBenchReader(), GpuModeReader(), RobustKbenchReader(), KernelBenchReader(),
    MultiKernelBenchReader(),
)  # fmt: skip
"""The readers of other suites' formats, in the order in which they are tried."""


class Found(NamedTuple):
    """The reader of a folder, and remarks about readers that cannot be used."""

    reader: SuiteReader
    remarks: tuple[str, ...] = ()
    """One line for each reader of another package that cannot be used, with the reason."""


def find_reader(folder: Path, form: str = "") -> Found:
    """Return the reader for a suite: the one of the format `form`, or else the first one that recognizes the folder.

    A single file, or a folder with a `suite.toml`, is always in kforge's own format. So is a folder that no reader
    recognizes. Raises ProblemError if there is no format of this name, or if the folder cannot be listed.
    """
    outside, remarks = _outside()
    readers = [*outside, *BUILT_IN, OWN]
    if form:
        for reader in readers:
            if reader.name == form:
                return Found(reader, tuple(remarks))
        raise ProblemError(f"no format {form!r}; there are: {', '.join(sorted({each.name for each in readers}))}")
    if not OWN.recognizes(folder):
        try:
            for reader in readers:
                if reader.recognizes(folder):
                    return Found(reader, tuple(remarks))
        except OSError as error:
            raise ProblemError(f"{folder}: cannot be read: {error.strerror}") from None
        except Exception as error:  # a bug in a package's reader, or fields that no reader expects
            raise ProblemError(reason_of(error, str(folder))) from error
    return Found(OWN, tuple(remarks))


def _outside() -> tuple[list[SuiteReader], list[str]]:
    """Return the readers of installed packages, and one line for each that cannot be used."""
    readers: list[SuiteReader] = []
    remarks: list[str] = []
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = point.load()
            reader = loaded() if isinstance(loaded, type) else loaded
        except Exception as error:  # a package may raise anything, and must not stop suites that it does not read
            remarks.append(f"the reader {point.name} = {point.value} is not used: {type(error).__name__}: {error}")
            continue
        if isinstance(reader, SuiteReader):
            readers.append(reader)
        else:
            remarks.append(f"the reader {point.name} = {point.value} is not used: it lacks name, recognizes or read")
    return readers, remarks
