"""Shared memory between referee and worker, and the tensors in it. (torch)

A region of host memory is sealed against shrinking. Otherwise a hostile worker could truncate it, and the referee's
next access would kill the referee. A region of device memory is allocated by the referee, and a worker opens it by a
handle. Every position that a worker reports is checked against the region's size before it is read.
"""

from __future__ import annotations

import dataclasses
import fcntl
import math
import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from kforge.errors import ChannelError
from kforge.evaluation.transport.wire import DtypeName, TensorRef, Tree
from kforge.problems.tensors import tensors_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kforge.platforms import DeviceMemory

ALIGNMENT = 64
"""Bytes to which tensors in host memory are aligned."""
DESCRIBED_ONLY = -1
"""Offset of a TensorRef whose values were not sent."""
ANY_SHAPE = (-1,)
"""Shape of a parameter that gets its shape with its first values, as in torch's lazy modules."""
REGION_NAME = "kforge"
"""Name of a region's file in host memory, as /proc/PID/maps shows it."""


class SharedRegion:
    """A piece of memory of fixed size that the referee and a worker both map, and the tensors that are placed in it."""

    def __init__(
        self, flat: torch.Tensor, *, descriptor: int = -1, handle: str = "", alignment: int = ALIGNMENT
    ) -> None:
        """`flat` is the region's memory as bytes. `descriptor` is its file, for host memory; `handle` is its device
        allocation."""
        self.flat = flat
        self.descriptor = descriptor
        self.handle = handle
        self.alignment = alignment
        self._mapped: mmap.mmap | None = None
        self._used = 0

    @classmethod
    def create(cls, size: int) -> SharedRegion:
        """Return a new region of host memory with at least this many bytes."""
        size = max(size, mmap.PAGESIZE)
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create(REGION_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        else:  # macOS has no memfd; an unlinked file can be mapped instead, but not sealed
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
            os.ftruncate(descriptor, size)
        return cls.mapped(descriptor, size)

    @classmethod
    def mapped(cls, descriptor: int, size: int) -> SharedRegion:
        """Map host memory behind a file descriptor, which is closed with the region."""
        mapped = mmap.mmap(descriptor, size)
        region = cls(torch.frombuffer(mapped, dtype=torch.uint8), descriptor=descriptor)
        region._mapped = mapped
        weakref.finalize(region, os.close, descriptor)
        return region

    @classmethod
    def on_device(cls, memory: DeviceMemory, size: int) -> SharedRegion:
        """Return a new region of device memory, with a handle by which a worker can open it."""
        flat = memory.allocate(size)
        return cls(flat, handle=memory.export(flat.data_ptr()).handle, alignment=memory.alignment)

    @classmethod
    def opened(cls, memory: DeviceMemory, handle: str) -> SharedRegion:
        """Open a region of device memory that another process made. `handle` is what that process exported."""
        return cls(memory.open(handle), alignment=memory.alignment)

    @property
    def size(self) -> int:
        return self.flat.numel()

    def clear(self) -> None:
        """Return the region's host memory to the system, if possible; it then reads as zeros."""
        if self._mapped is not None and hasattr(mmap, "MADV_REMOVE"):
            with suppress(OSError):  # a file system without holes
                self._mapped.madvise(mmap.MADV_REMOVE)

    def reset(self, shift: int = 0) -> None:
        """Remove all tensors, so that new ones are placed from the beginning. Bytes stay until they are overwritten.

        `shift` leaves that many multiples of the alignment free at the beginning.
        """
        self._used = shift * self.alignment

    def pack(self, value: Any) -> Tree:
        """Copy every tensor of a nested value into the region. Returns the value with a TensorRef for each tensor.

        Raises MemoryError if the region is full.
        """
        tree = self.place(value)
        self.fill(tree, value)
        return tree

    def place(self, value: Any) -> Tree:
        """Like `pack`, but only reserve the places; `fill` writes the values later."""
        return pytree.tree_map(self._place, value)

    def fill(self, tree: Tree, value: Any) -> None:
        """Write the tensors of `value` to the places that `place` returned."""
        refs = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, TensorRef)]
        for ref, tensor in zip(refs, tensors_in(value), strict=True):
            if tensor.is_cpu and self.flat.is_cpu and tensor.is_contiguous():
                # with one thread: other threads of torch would go on spinning while the next side is timed
                np.copyto(_bytes(self.view(ref)), _bytes(tensor))
            else:
                self.view(ref).copy_(tensor.detach())

    def unpack(self, tree: Tree, device: str | torch.device | None = None) -> Any:
        """Return the nested value with a tensor for each TensorRef: a view of the region, or a copy on `device`.

        Raises ChannelError for a TensorRef outside the region.
        """

        def resolve(leaf: Any) -> Any:
            if isinstance(leaf, TensorRef):
                view = self.view(leaf)
                return view if device is None else view.to(device)
            if isinstance(leaf, DtypeName):
                return getattr(torch, leaf.name)
            return leaf

        return pytree.tree_map(resolve, tree)

    def view(self, ref: TensorRef) -> torch.Tensor:
        """Return the tensor at a place of the region. Raises ChannelError if the place is not completely inside."""
        return tensor_at(self.flat, ref, ref.offset)

    def _place(self, leaf: Any) -> Tree:
        if isinstance(leaf, torch.dtype):
            return DtypeName(_name(leaf))
        if not isinstance(leaf, torch.Tensor):
            return leaf
        strides = tuple(leaf.stride())
        if has_overlap(leaf):  # elements that share an address cannot be written one by one: each gets its own
            strides = tuple(torch.empty(leaf.shape, device="meta").stride())
        ref = TensorRef(_name(leaf.dtype), tuple(leaf.shape), strides, self._used)
        end = self._used + extent(ref.shape, ref.strides) * leaf.dtype.itemsize
        if end > self.size:
            raise MemoryError("the shared region is full")
        self._used = -(-end // self.alignment) * self.alignment
        return ref


def tensor_at(flat: torch.Tensor, ref: TensorRef, offset: int) -> torch.Tensor:
    """Return a tensor in the memory `flat` at `offset` bytes. Raises ChannelError if it is not completely inside."""
    dtype: torch.dtype = getattr(torch, ref.dtype)
    if any(n < 0 for n in (*ref.shape, *ref.strides, offset)) or offset % dtype.itemsize:
        raise ChannelError("the other process reports a tensor at a negative or unaligned address")
    count = extent(ref.shape, ref.strides)
    end = offset + count * dtype.itemsize
    if end > flat.numel():
        raise ChannelError("the other process reports a tensor outside the shared region")
    if count == 0:
        bytes_named(ref)  # raises for a shape whose strides overflow: an empty tensor has some, too
        return torch.empty(ref.shape, dtype=dtype, device=flat.device)
    return flat[offset:end].view(dtype).as_strided(ref.shape, ref.strides)


def describe(tensor: torch.Tensor, place: int = DESCRIBED_ONLY) -> TensorRef:
    """Return the TensorRef of a tensor: dtype, shape and strides, with `place` as its offset or address."""
    if is_lazy(tensor):
        return TensorRef(_name(tensor.dtype), ANY_SHAPE, ANY_SHAPE, place)
    return TensorRef(_name(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), place)


def address(value: Any) -> Tree:
    """Return a nested value with a TensorRef for each tensor, whose offset is the tensor's address in this process."""

    def locate(leaf: Any) -> Any:
        return describe(leaf, leaf.data_ptr()) if isinstance(leaf, torch.Tensor) else leaf

    return locate(value) if isinstance(value, torch.Tensor) else pytree.tree_map(locate, value)


def addresses(values: list[Any]) -> list[Tree]:
    """Return the addresses of many values.

    The first one is described as by `address`. A tensor with the same dtype, shape and strides as the first is given by
    its address alone: this runs in a timed block, and describing each in full would take a few per cent of it.
    """
    first = values[0] if values else None
    if not isinstance(first, torch.Tensor):
        return [address(value) for value in values]
    shape, strides, dtype = first.shape, first.stride(), first.dtype
    plain = type(first)
    return [
        address(first),
        *[
            v.data_ptr()
            if type(v) is plain and v.dtype is dtype and v.shape == shape and v.stride() == strides
            else address(v)
            for v in values[1:]
        ],
    ]


def address_of(places: list[Tree], index: int) -> Tree:
    """Return the place of one value, from the result of `addresses`."""
    first, place = places[0], places[index]
    if isinstance(first, TensorRef) and type(place) is int:
        return dataclasses.replace(first, offset=place)
    return place


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    array: NDArray[np.uint8] = tensor.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy()
    return array


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first to the last one of a strided tensor, including gaps."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a strided tensor has no gaps in memory. Some elements may share an address."""
    reached = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride > reached + 1:
            return False
        reached += stride * (size - 1)
    return True


def has_overlap(tensor: torch.Tensor) -> bool:
    """Return whether a dimension has stride 0, so that its elements share an address."""
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def bytes_named(ref: TensorRef) -> int:
    """Return the bytes of a copy of a described tensor. Raises ChannelError for a shape that torch cannot have."""
    if any(n < 0 for n in ref.shape):
        raise ChannelError("the other process reports a tensor with a negative size")
    itemsize: int = getattr(torch, ref.dtype).itemsize
    # an empty tensor has strides, too, and they must not overflow
    if math.prod(max(1, n) for n in ref.shape) * itemsize >= 2**63:
        raise ChannelError("the other process reports a tensor that is larger than any memory")
    return math.prod(ref.shape) * itemsize


def described_if_over(limit: int, tree: Any) -> Any:
    """Return the tree unchanged if its tensors have at most `limit` bytes in total.

    Otherwise all tensors get the offset -1: they are larger than any right answer, so their shapes are enough for a
    verdict.
    """
    refs = [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, TensorRef)]
    if sum(map(bytes_named, refs)) <= limit:
        return tree
    return pytree.tree_map(
        lambda leaf: dataclasses.replace(leaf, offset=-1) if isinstance(leaf, TensorRef) else leaf, tree
    )


def bytes_of(value: Any, alignment: int = ALIGNMENT) -> int:
    """Return the size in bytes of a region that can hold all tensors of a nested value."""
    elements = ((max(t.numel(), extent(tuple(t.shape), tuple(t.stride()))), t) for t in tensors_in(value))
    return sum(count * tensor.dtype.itemsize + alignment for count, tensor in elements)
