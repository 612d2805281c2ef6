"""Describes this machine's processor in lines of text, for the author of a program. Nothing is measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.platforms import host

if TYPE_CHECKING:
    from collections.abc import Iterator

FLOAT_BYTES = 4
"""Bytes of a float32 number. The width of vector registers is also given as a number of these."""


def facts() -> Iterator[tuple[str, str]]:
    """Yield name and text of each fact about the processor that the operating system reports."""
    yield "Processor", host.describe()
    count, threads = host.cores(), host.threads()
    if count is not None:
        each = f", {threads // count} hardware threads each" if threads > count else ""
        yield "Cores", f"{count}{each}"
    registers = host.vector_registers()
    if registers is not None:
        size, name = registers
        yield "Vector registers", f"{size} bytes ({name}): {size // FLOAT_BYTES} float32 numbers"
    hertz = host.most_hertz()
    yield "Highest clock", f"{hertz / 1e9:.3g} GHz" if hertz is not None else "the kernel does not report it"
