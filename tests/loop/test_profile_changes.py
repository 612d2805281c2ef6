"""What two profiles say about the difference of their programs."""

from __future__ import annotations

from typing import Any

from kforge.loop.profile_changes import MOST_LINES, changes
from kforge.profiling.rows import IDLE
from kforge.records import AuthoredCode, HotSpot, KernelCounters, Peaks, Profile, Roofline, SourceLoop

PEAKS = Peaks(device="here", bytes_per_second=1e10, flops_per_second=1e11)


def profile(rows: dict[str, float], **parts: Any) -> Profile:
    spots = tuple(HotSpot(name=name, calls=1, seconds=seconds, share=0.1) for name, seconds in rows.items())
    roofline = Roofline(peaks=PEAKS, memory_seconds=1e-4, compute_seconds=1e-5)
    return Profile(tool="t", seconds=1e-3, hot_spots=spots, roofline=roofline, digest_text="", **parts)


def authored(report: str, **parts: Any) -> AuthoredCode:
    loop = SourceLoop(function="f", line=7, last=9, text="for (;;) {", share=0.8, report=report)
    return AuthoredCode(samples=100, share=0.9, loops=(loop,), **parts)


def test_rows_are_named_by_their_change_and_small_changes_are_not() -> None:
    before = profile({"mm": 6e-4, "copy_": 1e-4, "add": 2e-4, IDLE: 5e-4})
    after = profile({"mm": 6.4e-4, "copy_": 5e-4, "sum": 7e-4})
    assert changes(before, after) == (
        "sum: not there before, 700 µs now",
        "copy_: 100 µs before, 500 µs now",
        "add: 200 µs before, not there now",
    )
    assert changes(before, before) == ()


def test_a_loop_that_lost_its_vectors_is_named() -> None:
    lost = "not vectorized: control flow in loop"
    before = profile({}, authored=authored("vectorized, 32-byte registers", registers={"32-byte vectors": 0.9}))
    after = profile({}, authored=authored(lost, registers={"32-byte vectors": 0.2, "scalar floating point": 0.75}))
    assert changes(before, after) == (
        f"loop in line 7, 80% of the samples: {lost} (before: vectorized, 32-byte registers)",
        "instructions with 32-byte vectors: 90% of the samples before, 20% now",
        "instructions with scalar floating point: 0% of the samples before, 75% now",
    )


def test_counters_of_the_hottest_kernels_are_compared() -> None:
    def counted(name: str, occupancy: float, **stalls: float) -> KernelCounters:
        return KernelCounters(
            name=name, launches=1, seconds=1e-3, share=1.0, figures={"occupancy": occupancy}, stalls=stalls
        )

    before = profile({}, kernels=(counted("old", 0.8, barrier=0.1),))
    after = profile({}, kernels=(counted("new", 0.3, barrier=0.5),))
    assert changes(before, after) == (
        "old → new, occupancy: 0.8 before, 0.3 now",
        "old → new, warps wait for barrier: 10% of the samples before, 50% now",
    )


def test_only_the_clearest_changes_are_told() -> None:
    assert len(changes(profile({}), profile({f"op{number}": 1e-4 for number in range(50)}))) == MOST_LINES
