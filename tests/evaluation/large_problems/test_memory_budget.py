"""The memory that an evaluation plans with: what is given or free, and what is refused."""

from __future__ import annotations

import pytest

from kforge.errors import InputError
from kforge.evaluation.large_problems.memory_budget import Budget, LimitedMemory
from kforge.platforms import host

GB = 10**9


class Memory:
    """A device of which a part is used; what torch keeps for later is free for us alone."""

    alignment = 512

    def __init__(self, free: int, kept: int = 0) -> None:
        self.unused, self.kept = free, kept

    def free(self) -> int:
        return self.unused

    def within_reach(self) -> int:
        return self.unused + self.kept

    def trim(self) -> None:
        self.unused, self.kept = self.unused + self.kept, 0


def test_the_limit_is_what_is_given_or_free() -> None:
    assert Budget.of(24 * GB, Memory(100 * GB)) == Budget(24 * GB, is_given=True)
    assert Budget.of(0, Memory(100 * GB, 5 * GB)) == Budget(105 * GB, is_given=False)
    assert 0 < Budget.of(0, None).limit <= host.available_memory()


def test_large_problems_are_judged_in_pieces_and_small_ones_are_not() -> None:
    assert not Budget(140 * GB, is_given=False).is_short_for(4 * GB)
    assert Budget(139 * GB, is_given=False).is_short_for(14 * GB)
    few, many = (Budget(limit * GB, is_given=True).pieces_of(14 * GB) for limit in (140, 56))
    assert 1 < few < many


def test_a_limit_below_what_judging_takes_is_refused_in_words() -> None:
    Budget(56 * GB, is_given=True).must_hold("softmax", 14 * GB)
    with pytest.raises(InputError, match=r"softmax: .* take 14 GB, .* up to 56 GB of memory; .* 24 GB: raise --memory"):
        Budget(24 * GB, is_given=True).must_hold("softmax", 14 * GB)
    Budget(24 * GB, is_given=False).must_hold("softmax", 14 * GB)


def test_a_limited_device_counts_what_was_used_since() -> None:
    real = Memory(100 * GB)
    limited = LimitedMemory(real, 24 * GB)  # type: ignore[arg-type] - it shares nothing
    assert limited.free() == 24 * GB
    real.unused, real.kept = 80 * GB, 5 * GB
    assert limited.free() == 4 * GB
    assert limited.within_reach() == 9 * GB
    limited.trim()
    assert limited.free() == 9 * GB
    real.unused = 10 * GB  # others need it
    assert limited.free() == 0
