"""Finds outputs that lie in the memory of inputs. A program may return such a view only where the reference does.
(torch)

A view of an input costs nothing, and changes when the input changes. So if the reference makes a new tensor, a program
must do so as well. If the reference returns an input or a view of one, the program may do the same or return a copy. In
verified calls the worker itself reports which outputs are views. A false report is detected in timed blocks: there the
referee compares the addresses with the mappings that the kernel lists for the worker.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from kforge.errors import ChannelError
from kforge.evaluation.transport.shared_memory import REGION_NAME, describe, extent
from kforge.evaluation.transport.wire import TensorRef

if TYPE_CHECKING:
    from kforge.evaluation.transport.shared_memory import SharedRegion
    from kforge.evaluation.transport.wire import Tree

Aliases = frozenset[tuple[int, int]]
"""Pairs of the number of an output and the number of an input in whose memory it lies, both counted by
`tensor_leaves`."""
UNDUE_VIEW = "an output is a view of an input, but the reference makes a new tensor"
"""Reason of a rejection, as users read it."""
NO_INPUT_OF_ITS = -1
"""Stands for an input's number if an output lies in the memory for inputs, but not inside one input of its own call."""


class Mapping(NamedTuple):
    """A range of addresses of a process that is mapped to a shared region or a file."""

    begin: int
    end: int
    offset: int
    """Position in the region or file of the range's first byte."""
    file: str = ""
    """Device and inode number of the file; empty if they do not matter."""
    is_shared: bool = True
    """Whether other processes see what the process writes there."""


def find_aliases(outputs: Any, inputs: Any) -> Aliases:
    """Return which output tensors overlap in memory with which input tensors. Both arguments may be nested."""
    return frozenset(
        (number, other)
        for number, (begin, end) in enumerate(map(span, tensor_leaves(outputs)))
        for other, (first, last) in enumerate(map(span, tensor_leaves(inputs)))
        if max(begin, first) < min(end, last)
    )


def lying_in_inputs(outputs: Tree, inputs: Tree, mappings: list[Mapping]) -> Aliases:
    """Return the aliases of a worker's outputs, by addresses.

    `outputs` has the addresses in the worker, `inputs` the offsets in the region for inputs, and `mappings` the
    addresses where the worker has that region. An output in the region, but not inside one input of its own call, gets
    the number `NO_INPUT_OF_ITS`.
    """
    places = [span(ref) for ref in tensor_leaves(inputs)]

    def holder(begin: int, end: int) -> int:
        found = (number for number, (first, last) in enumerate(places) if first <= begin and end <= last)
        return next(found, NO_INPUT_OF_ITS)

    return frozenset(
        (number, holder(begin - mapping.begin + mapping.offset, end - mapping.begin + mapping.offset))
        for number, (begin, end) in enumerate(map(span, tensor_leaves(outputs)))
        for mapping in mappings
        if max(begin, mapping.begin) < min(end, mapping.end)
    )


def tensor_leaves(value: Any) -> list[Any]:
    """Return all tensors, or descriptions of tensors, in a nested value. The values of dicts are in the order of their
    keys."""
    if isinstance(value, torch.Tensor | TensorRef):
        return [value]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=lambda key: (str(key), type(key).__name__))]  # 7 and "7"
    return [leaf for item in value for leaf in tensor_leaves(item)] if isinstance(value, list | tuple) else []


def span(tensor: torch.Tensor | TensorRef) -> tuple[int, int]:
    """Return the address of a tensor's first byte, and of the byte after its last one. Both are equal for an empty
    tensor."""
    ref = describe(tensor, tensor.data_ptr()) if isinstance(tensor, torch.Tensor) else tensor
    itemsize: int = getattr(torch, ref.dtype).itemsize
    return ref.offset, ref.offset + extent(ref.shape, ref.strides) * itemsize


def mappings_of(pid: int, region: SharedRegion) -> list[Mapping]:
    """Return where another process has mapped a region of host memory, as the kernel lists it.

    Raises ChannelError if the process has mapped it privately, or if its mappings cannot be read.
    """
    inode = f" {os.fstat(region.descriptor).st_ino}"
    found = [each for each in _mapped(pid, REGION_NAME) if each.file.endswith(inode)]
    if not all(each.is_shared for each in found):
        raise ChannelError("it has mapped the memory for inputs privately, which hides what it writes there")
    return found


def shared_files_of(pid: int) -> list[Mapping]:
    """Return the shared mappings of another process: the same memory may be mapped several times. Raises ChannelError
    if the kernel does not show them.

    Private mappings are left out, because they become separate memory as soon as they are written.
    """
    return [each for each in _mapped(pid, "s ") if each.is_shared and not each.file.endswith(" 0")]


def _mapped(pid: int, part: str) -> list[Mapping]:
    """Return the mappings of a process whose line in /proc/PID/maps contains the text `part`. Raises ChannelError if
    the file cannot be read."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError as error:
        raise ChannelError(f"its memory cannot be seen: {error}") from None
    found = []
    for line in lines:
        if part in line:
            addresses, rights, offset, device, inode, *_ = line.split(maxsplit=5)
            begin, end = (int(address, 16) for address in addresses.split("-"))
            found.append(Mapping(begin, end, int(offset, 16), f"{device} {inode}", rights.endswith("s")))
    return found
