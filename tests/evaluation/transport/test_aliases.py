"""Which outputs lie in which inputs, as a process says of itself and as it is seen from outside."""

import mmap
import os

import pytest
import torch

from kforge.errors import ChannelError
from kforge.evaluation.transport.aliases import (
    NO_INPUT_OF_ITS,
    Mapping,
    find_aliases,
    lying_in_inputs,
    mappings_of,
    shared_files_of,
)
from kforge.evaluation.transport.shared_memory import SharedRegion, address


def test_views_are_found_whatever_their_shape_and_copies_are_not() -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    outputs = (x, x.t()[1:3], y.view(torch.int32), y[:, :1].expand(4, 9), x.clone(), x + y)
    assert find_aliases(outputs, [x, y]) == {(0, 0), (1, 0), (2, 1), (3, 1)}


def test_inputs_in_one_storage_are_told_apart() -> None:
    """A worker's inputs all lie in one region."""
    region = torch.zeros(64)
    inputs = [region[:16], region[16:32], region[48:]]
    assert find_aliases([region[20:24], region[40:44], region[30:50]], inputs) == {(0, 1), (2, 1), (2, 2)}


def test_an_empty_tensor_lies_nowhere() -> None:
    x = torch.randn(4, 6)
    assert find_aliases([x[:, 2:2], torch.empty(0)], [x, x[:0]]) == frozenset()


def test_outputs_are_counted_alike_in_dicts_filled_otherwise() -> None:
    x = torch.randn(3)
    one, other = {"b": x, "a": {"c": torch.zeros(1), 2: x}}, {"a": {2: x, "c": torch.zeros(1)}, "b": x}
    assert find_aliases(one, [x]) == find_aliases(other, [x]) == {(0, 0), (2, 0)}


def test_what_lies_beside_the_inputs_of_a_call_is_no_input_of_its() -> None:
    region = torch.zeros(64)
    places = SharedRegion(region.view(torch.uint8)).place([torch.zeros(8), torch.zeros(16)])  # at the bytes 0 and 64
    base = region.data_ptr()
    outputs = [region[2:4], region[18:20], region[10:12], region[4:20], torch.zeros(4)]
    found = lying_in_inputs([address(each) for each in outputs], places, [Mapping(base, base + 256, 0)])
    assert found == {(0, 0), (1, 1), (2, NO_INPUT_OF_ITS), (3, NO_INPUT_OF_ITS)}


def test_every_mapping_of_a_region_is_seen() -> None:
    region, other = SharedRegion.create(1 << 16), SharedRegion.create(1 << 16)
    again = torch.frombuffer(mmap.mmap(region.descriptor, 1 << 15, offset=1 << 15), dtype=torch.uint8)
    found = [each[:3] for each in mappings_of(os.getpid(), region)]
    here = region.flat.data_ptr()
    assert (here, here + (1 << 16), 0) in found
    assert (again.data_ptr(), again.data_ptr() + (1 << 15), 1 << 15) in found
    assert not any(begin <= other.flat.data_ptr() < end for begin, end, _ in found)


def test_a_private_mapping_of_a_region_is_refused() -> None:
    region = SharedRegion.create(1 << 16)
    private = mmap.mmap(region.descriptor, 1 << 16, flags=mmap.MAP_PRIVATE)
    with pytest.raises(ChannelError, match="hides what it writes"):
        mappings_of(os.getpid(), region)
    private.close()
    assert mappings_of(os.getpid(), region)


def test_memory_that_may_be_mapped_several_times_is_seen() -> None:
    region = SharedRegion.create(1 << 16)
    here = region.flat.data_ptr()
    files = shared_files_of(os.getpid())
    assert [each.end - each.begin for each in files if each.begin <= here < each.end] == [1 << 16]
    own = torch.zeros(1 << 16).data_ptr()
    assert not any(each.begin <= own < each.end for each in files)
