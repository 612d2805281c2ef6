"""Shared regions: tensors cross as they are, and a place outside the region is refused."""

import mmap
import os
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from kforge.errors import ChannelError
from kforge.evaluation.transport.shared_memory import (
    SharedRegion,
    address,
    address_of,
    addresses,
    bytes_named,
    bytes_of,
    extent,
    is_dense,
)
from kforge.evaluation.transport.wire import TensorRef
from kforge.problems.tensors import same

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=4), st.booleans()), max_size=5))
def test_nested_values_cross(kinds: list[tuple[torch.dtype, list[int], bool]]) -> None:
    tensors = []
    for dtype, shape, transposed in kinds:
        tensor = torch.randint(0, 2, shape).to(dtype)
        tensors.append(tensor.transpose(0, -1) if transposed and tensor.dim() > 1 else tensor)
    value = {"list": tensors, "tuple": (1, 2.5, None, "text", True), "dtype": torch.float16}
    region = SharedRegion.create(bytes_of(value))
    back = region.unpack(region.pack(value))
    assert same(back["list"], tensors)
    assert [t.stride() for t in back["list"] if t.numel()] == [t.stride() for t in tensors if t.numel()]
    assert back["tuple"] == value["tuple"]
    assert back["dtype"] is torch.float16


def test_both_sides_see_the_same_memory() -> None:
    ours = SharedRegion.create(4096)
    ref = ours.pack(torch.zeros(4))
    theirs = SharedRegion.mapped(os.dup(ours.descriptor), ours.size)
    theirs.view(ref).fill_(3)
    assert ours.view(ref).tolist() == [3, 3, 3, 3]


def test_an_expanded_tensor_crosses_whole() -> None:
    tensor = torch.arange(3.0).expand(4, 3)
    region = SharedRegion.create(4096)
    assert torch.equal(region.unpack(region.pack(tensor)), tensor)


def test_a_full_region_says_so() -> None:
    with pytest.raises(MemoryError):
        SharedRegion.create(64).pack(torch.zeros(mmap.PAGESIZE))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only a memfd can be sealed")
def test_a_worker_cannot_shrink_a_region() -> None:
    region = SharedRegion.create(8192)
    with pytest.raises(PermissionError):
        os.ftruncate(region.descriptor, 10)


@given(
    shape=st.lists(st.integers(-3, 2**40), max_size=3),
    strides=st.lists(st.integers(-3, 2**40), max_size=3),
    offset=st.integers(-5, 2**50),
)
@example(shape=[0, 2**32, 2**32], strides=[], offset=0)
def test_no_place_outside_is_ever_read(shape: list[int], strides: list[int], offset: int) -> None:
    region = SharedRegion.create(4096)
    strides = (strides + [1] * 3)[: len(shape)]
    try:
        view = region.view(TensorRef("float32", tuple(shape), tuple(strides), offset))
    except ChannelError:
        return
    assert view.numel() == 0 or offset + 4 * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) <= 4096


@pytest.mark.parametrize("shape", [(2**40, 2**40), (0, 2**62, 2**62), (2**63 - 1,), (-1,), (4, -4)])
def test_a_shape_that_torch_cannot_have_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ChannelError):
        bytes_named(TensorRef("float32", shape, (0,) * len(shape), 0))


@given(st.lists(st.integers(0, 5), max_size=4))
def test_what_a_copy_takes_is_known_before_it_is_made(shape: list[int]) -> None:
    tensor = torch.zeros(shape).expand(shape)
    assert bytes_named(TensorRef("float32", tuple(shape), tensor.stride(), 0)) == tensor.clone().nbytes


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 7)), max_size=4))
def test_a_dense_tensor_is_one_whose_elements_fill_all_places(dims: list[tuple[int, int]]) -> None:
    shape, strides = tuple(size for size, _ in dims), tuple(stride for _, stride in dims)
    marks = torch.zeros(extent(shape, strides))
    marks.as_strided(shape, strides).fill_(1)
    assert is_dense(shape, strides) == bool(marks.all())


def test_every_tensor_has_an_address() -> None:
    tensor = torch.zeros(2)
    places = address({"a": tensor, "b": [torch.zeros(2, device="meta"), 3]})
    assert places["a"].offset == tensor.data_ptr()
    assert places["b"][0].offset == 0
    assert places["b"][1] == 3


def test_many_addresses_are_those_of_each() -> None:
    values = [torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(4, 3).T, torch.zeros(3, 4, dtype=torch.float64), (1, 2)]
    for many in (values, values[::-1], [1, 2], []):
        places = addresses(many)
        assert [address_of(places, index) for index in range(len(many))] == [address(value) for value in many]


def test_a_region_that_is_dropped_leaves_no_descriptor() -> None:
    def descriptors() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    before = descriptors()
    for _ in range(3):
        region = SharedRegion.create(1)
        view = region.view(TensorRef("uint8", (1,), (1,), 0))
        del region, view
    assert descriptors() == before


@pytest.mark.skipif(not hasattr(mmap, "MADV_REMOVE"), reason="only Linux can give the pages of a file back")
def test_a_cleared_region_holds_no_memory() -> None:
    region = SharedRegion.create(8 << 20)
    region.flat.fill_(1)
    assert os.fstat(region.descriptor).st_blocks
    region.clear()
    assert not os.fstat(region.descriptor).st_blocks
    assert not region.flat.any()
    region.flat.fill_(2)
    assert region.flat.all()
