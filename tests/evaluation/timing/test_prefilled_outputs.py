"""Memory that was filled before the clock started is told by where outputs lie."""

import os

import pytest

from kforge.evaluation.timing.prefilled_outputs import LEAST, OUTPUTS, OutputMemory, could_last, memory_held, stocked
from kforge.evaluation.transport.wire import TensorRef

MIB = 1 << 20


def output(at: int, size: int) -> TensorRef:
    return TensorRef("float32", (size // 4,), (1,), at)


def lying_at(places: list[int], size: int) -> OutputMemory:
    memory = OutputMemory()
    for place in places:  # a block each
        memory.add([output(place, size)])
    return memory


def test_memory_that_is_used_again_counts_once() -> None:
    memory = lying_at([0, 4 * MIB, 0, 2 * MIB], 4 * MIB)
    assert memory.size == 8 * MIB
    assert memory.largest == 4 * MIB


def rows(at: int, count: int, size: int, apart: int) -> TensorRef:
    """Rows of a larger buffer; sizes in bytes."""
    return TensorRef("float32", (count, size // 4), (apart // 4, 1), at)


def test_gaps_between_the_rows_of_an_output_do_not_count() -> None:
    """Cause: outputs in place, beside what they were computed from, seemed to lie in memory that was filled before."""
    memory = OutputMemory()
    for number in range(4):
        memory.add([rows(number * 64 * MIB, 64, MIB // 4, MIB)])
    assert memory.size == pytest.approx(4 * 16 * MIB, rel=0.02)


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_outputs_in_the_gaps_of_others_count(outputs: int) -> None:
    memory = OutputMemory()
    for number in range(outputs):
        memory.add([rows(number * MIB // 4, 64, MIB // 4, MIB)])
    assert memory.size == pytest.approx(outputs * 16 * MIB, rel=0.02)


def test_an_output_without_a_place_is_left_out() -> None:
    memory = OutputMemory()
    memory.add([output(-1, MIB), 3.0, None])
    memory.add([])
    assert memory.size == memory.largest == 0


@pytest.mark.parametrize(("outputs", "is_stock"), [(4, False), (OUTPUTS, False), (60, True)])
def test_each_output_in_memory_of_its_own_is_a_stock(outputs: int, is_stock: bool) -> None:
    baseline = lying_at([0, 32 * MIB] * 30, 32 * MIB)
    candidate = lying_at([32 * MIB * number for number in range(outputs)], 32 * MIB)
    assert stocked(baseline, candidate) == (candidate.size if is_stock else 0)


def test_the_memory_of_a_process_is_its_own() -> None:
    before = memory_held(os.getpid())
    held = bytearray(os.urandom(1 << 16) * 512)
    assert memory_held(os.getpid()) - before > len(held) // 2
    assert memory_held(2**22 + 1) == 0, "there is no such process"


def test_small_outputs_may_lie_anywhere() -> None:
    baseline = lying_at([0] * 1000, 4096)
    candidate = lying_at([8192 * number for number in range(1000)], 4096)
    assert candidate.size < LEAST
    assert stocked(baseline, candidate) == 0


@pytest.mark.parametrize(
    ("held", "seen", "longer"),
    [
        (4096 * MIB, 320 * MIB, True),
        (4096 * MIB, 8192 * MIB, False),  # a stock would have been seen by now
        (100 * MIB, 320 * MIB, False),  # too little for most calls
        (1 * MIB, 0, False),  # a library that was imported; small outputs never add up to a stock
    ],
)
def test_a_race_is_longer_where_a_stock_could_have_lasted(held: int, seen: int, longer: bool) -> None:
    assert could_last(held, seen, lying_at([0, 32 * MIB], 32 * MIB)) is longer
