"""The SYCL device of this process: the one that SYCL prefers, a GPU if there is one, opened once.

Run as a program, this module writes the device's description to a file as JSON. That is done in a separate process
because loading a driver starts threads and may crash.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kforge.inline import configuration
from kforge.inline.errors import ToolchainError
from kforge.inline.geometry import Limits
from kforge.inline.sycl import launcher, packages

_MOST_THREADS = 2**31 - 1


@dataclass(frozen=True)
class Description:
    """Properties of a device that are known before a kernel runs."""

    name: str
    driver: str
    """Name and version of the driver."""
    is_processor: bool
    """Whether kernels run on the host's processors."""
    doubles: bool
    halves: bool


class Device:
    """An open device."""

    def __init__(self, native: Any, facts: launcher.Facts) -> None:
        self.native = native
        """The launcher, whose functions use this device."""
        self.description = Description(
            name=_text(facts.name),
            driver=_text(facts.driver),
            is_processor=bool(facts.is_processor),
            doubles=bool(facts.doubles),
            halves=bool(facts.halves),
        )
        self.in_host_memory = bool(facts.in_host_memory)
        """Whether kernels use tensors in host memory themselves instead of copies."""
        group = tuple(facts.group)
        self.limits = Limits(
            group=(group[0], group[1], group[2]),
            group_threads=facts.group_threads,
            groups=(_MOST_THREADS, _MOST_THREADS, _MOST_THREADS),
        )


def open_device() -> Device:
    """Return the device of this process. Raises ToolchainError if the packages are missing or there is no device."""
    # a forked process must open the device again: fork does not copy the driver's threads
    return _opened(os.getpid())


@cache
def _opened(process: int) -> Device:  # noqa: ARG001 - one device a process
    native, facts = launcher.load(), launcher.Facts()
    driver = packages.find().driver
    builds = configuration.current().cache_folder / "sycl"
    error = native.kforge_open(os.fsencode(driver or ""), os.fsencode(builds), ctypes.byref(facts))
    if error is not None:
        remedy = "" if driver is not None else f"; install the driver for processors: pip install {packages.DRIVER}"
        raise ToolchainError(f"SYCL cannot open a device here: {_text(error)}{remedy}")
    return Device(native, facts)


def _text(native: bytes) -> str:
    return " ".join(native.decode(errors="replace").split())


def main(file: str) -> None:
    """Write the device's description, or the reason why there is no device, to this file as JSON."""
    try:
        told = asdict(open_device().description)
    except ToolchainError as error:
        told = {"reason": str(error)}
    Path(file).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
