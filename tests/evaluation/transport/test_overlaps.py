"""Elements of outputs that lie in one place are found, and memory that only interleaves is not blamed."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge.evaluation.transport.aliases import Mapping
from kforge.evaluation.transport.overlaps import MOST_LOOKS, mapped_twice, overlapping, overlaps_itself, share_elements
from kforge.evaluation.transport.shared_memory import address, extent
from kforge.evaluation.transport.wire import TensorRef

BUFFER = torch.zeros(64, 8)


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        ([BUFFER[:32], BUFFER[32:]], set()),
        ([BUFFER[:, :4], BUFFER[:, 4:]], set()),
        ([BUFFER[:, ::2], BUFFER[:, 1::2]], set()),
        ([BUFFER[:33], BUFFER[32:]], {"outputs of two calls"}),
        ([BUFFER[:, :5], BUFFER[:, 4:]], {"outputs of two calls"}),
        ([BUFFER, BUFFER], {"outputs of two calls"}),
        ([(BUFFER[0], BUFFER[0])], {"two outputs of a call"}),
        ([{"a": BUFFER[0], "b": BUFFER[1]}], set()),
        ([BUFFER[:1].expand(64, 8)], {"elements of one output"}),
        ([BUFFER.reshape(-1).unfold(0, 4, 2)], {"elements of one output"}),
        ([BUFFER.reshape(-1).unfold(0, 4, 4)], set()),
        ([BUFFER[:0], BUFFER], set()),
        ([BUFFER[:2].view(torch.int32), BUFFER[:2]], {"outputs of two calls"}),
        ([None, 3, BUFFER], set()),
    ],
)
def test_what_shares_memory_is_named(outputs: list[object], found: set[str]) -> None:
    assert {what for what, *_ in overlapping([address(output) for output in outputs])} == found


@pytest.mark.parametrize(
    ("mappings", "found"),
    [
        ([Mapping(0, 400, 0, "a")], False),
        ([Mapping(0, 200, 0, "a"), Mapping(200, 400, 200, "a")], False),  # one place, mapped in two parts
        ([Mapping(0, 200, 0, "a"), Mapping(200, 400, 0, "a")], True),
        ([Mapping(0, 200, 0, "a"), Mapping(200, 400, 100, "a")], True),
        ([Mapping(0, 200, 0, "a"), Mapping(200, 400, 0, "b")], False),
        ([Mapping(0, 200, 0, "a"), Mapping(400, 600, 0, "a")], False),  # mapped again where no output lies
    ],
)
def test_memory_of_outputs_that_is_mapped_twice_is_found(mappings: list[Mapping], found: bool) -> None:
    first, second = (TensorRef("uint8", (200,), (1,), offset) for offset in (0, 200))
    assert mapped_twice([first, second], mappings) is found
    assert mapped_twice([(first, second)], mappings) is found
    assert mapped_twice([TensorRef("uint8", (400,), (1,), 0)], mappings) is found


def test_more_interleaved_outputs_than_anybody_returns_are_not_looked_at_one_by_one() -> None:
    strides = [TensorRef("uint8", (1 << 8,), (MOST_LOOKS,), number) for number in range(MOST_LOOKS)]
    assert overlapping(list(strides[:4])) == set()
    assert {what for what, *_ in overlapping(list(strides))} == {"outputs of two calls"}


def test_an_overlap_is_known_by_its_outputs() -> None:
    both = [address((BUFFER[0], BUFFER[1], BUFFER[0])), address((BUFFER[2], BUFFER[1], BUFFER[3]))]
    assert overlapping(both) == {("two outputs of a call", 0, 2), ("outputs of two calls", 1, 1)}


STRIDED = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=3)


def places(layout: list[tuple[int, int]], offset: int) -> list[int]:
    found = [offset]
    for size, stride in layout:
        found = [place + step * stride for place in found for step in range(size)]
    return found


def described(layout: list[tuple[int, int]], offset: int) -> TensorRef:
    return TensorRef("float32", tuple(n for n, _ in layout), tuple(s for _, s in layout), 4 * offset)


@given(STRIDED, st.integers(0, 20), STRIDED, st.integers(0, 20))
def test_it_agrees_with_listing_every_element(
    one: list[tuple[int, int]], at: int, other: list[tuple[int, int]], there: int
) -> None:
    first, second = described(one, at), described(other, there)
    assert overlaps_itself(first) == (len(set(places(one, at))) < math.prod(first.shape))
    assert extent(first.shape, first.strides) == max(places(one, at)) - at + 1
    assert share_elements(first, second) == bool(set(places(one, at)) & set(places(other, there)))
