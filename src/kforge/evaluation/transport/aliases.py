"""Finds outputs that lie in the memory of inputs: a program may do this where the reference does in the same call.
(torch)

A view of an input costs nothing and changes with it. So where the reference makes a new tensor, a program must as well.
Where the reference returns an input or a view of one, the program may do so, or return a copy. In verified calls the
worker says which outputs are views, and what it hides shows in timed blocks: there the referee compares addresses
itself, with those of the regions that the kernel lists in the worker's memory.
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
"""Pairs of an output's number and the number of an input in whose memory it lies, both counted by `tensor_leaves`."""
UNDUE_VIEW = "an output is a view of an input where the reference makes a new tensor"
NO_INPUT_OF_ITS = -1
"""In place of an input's number: memory for inputs that does not belong to one input of the same call."""


class Mapping(NamedTuple):
    """A range of a process's addresses, and the offset in a region or file with which it begins."""

    begin: int
    end: int
    offset: int
    file: str = ""
    """The device and inode of the file, where that matters."""
    is_shared: bool = True
    """Whether others see what the process writes there."""


def find_aliases(outputs: Any, inputs: Any) -> Aliases:
    """Return which tensors of a nested output overlap in memory with which tensors of the inputs."""
    return frozenset(
        (number, other)
        for number, (begin, end) in enumerate(map(span, tensor_leaves(outputs)))
        for other, (first, last) in enumerate(map(span, tensor_leaves(inputs)))
        if max(begin, first) < min(end, last)
    )


def lying_in_inputs(outputs: Tree, inputs: Tree, mappings: list[Mapping]) -> Aliases:
    """Return the aliases of a worker's outputs, by their addresses there; inputs are given by their places in a region.

    An output in the inputs of another call, or beside those of its own, has the number `NO_INPUT_OF_ITS`.
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
    """Return the tensors of a nested value, or their descriptions, in an order that does not depend on how dicts were
    filled."""
    if isinstance(value, torch.Tensor | TensorRef):
        return [value]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=str)]
    return [leaf for item in value for leaf in tensor_leaves(item)] if isinstance(value, list | tuple) else []


def span(tensor: torch.Tensor | TensorRef) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the byte after its last; an empty tensor spans nothing."""
    ref = describe(tensor, tensor.data_ptr()) if isinstance(tensor, torch.Tensor) else tensor
    itemsize: int = getattr(torch, ref.dtype).itemsize
    return ref.offset, ref.offset + extent(ref.shape, ref.strides) * itemsize


def mappings_of(pid: int, region: SharedRegion) -> list[Mapping]:
    """Return where another process has mapped a region of host memory, as the kernel lists it. Raises ChannelError."""
    inode = f" {os.fstat(region.descriptor).st_ino}"
    found = [each for each in _mapped(pid, REGION_NAME) if each.file.endswith(inode)]
    if not all(each.is_shared for each in found):
        raise ChannelError("it has mapped the memory for inputs privately, which hides what it writes there")
    return found


def shared_files_of(pid: int) -> list[Mapping]:
    """Return the shared memory of another process, which may be mapped several times. Raises ChannelError.

    Private mappings of one file become separate memory as soon as they are written.
    """
    return [each for each in _mapped(pid, "s ") if each.is_shared and not each.file.endswith(" 0")]


def _mapped(pid: int, part: str) -> list[Mapping]:
    """Return the mappings that the kernel lists on lines with this text."""
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
