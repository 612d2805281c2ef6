"""Rates of a device that were measured twice, and its facts as text."""

from hypothesis import given
from hypothesis import strategies as st

from kforge.records import CacheLevel, DeviceFact, DeviceFacts, Peaks

RATES = st.floats(1e6, 1e15)
MAYBE = st.none() | RATES


@st.composite
def peaks(draw: st.DrawFn) -> Peaks:
    caches = [CacheLevel(level=level, bytes=1 << 20, threads=1, bytes_per_second=draw(MAYBE)) for level in (1, 2)]
    return Peaks(
        device="d", bytes_per_second=draw(RATES), flops_per_second=draw(RATES), hertz=draw(MAYBE),
        quiet=draw(st.booleans()),
        lowered=draw(st.dictionaries(st.sampled_from(["tf32", "half"]), RATES)),
        wired_bytes_per_second=draw(MAYBE), caches=tuple(caches),
    )  # fmt: skip


def rates(of: Peaks) -> dict[str, float]:
    plain = {name: getattr(of, name) for name in ("bytes_per_second", "flops_per_second", "hertz")}
    caches = {f"L{cache.level}": cache.bytes_per_second for cache in of.caches}
    every = {**plain, **caches, **of.lowered, "wired": of.wired_bytes_per_second}
    return {name: rate for name, rate in every.items() if rate is not None}


@given(peaks(), peaks())
def test_of_two_measurements_each_rate_is_the_larger_one(one: Peaks, other: Peaks) -> None:
    joined, first, second = one.joined(other), rates(one), rates(other)
    names = first.keys() | second.keys()
    assert rates(joined) == {name: max(first.get(name, 0), second.get(name, 0)) for name in names}
    assert joined.quiet == (one.quiet or other.quiet)


def test_facts_are_lines_with_aligned_names() -> None:
    found = Peaks(device="d", bytes_per_second=1e9, flops_per_second=1e9)
    rows = (DeviceFact(name="Cores", text="2"), DeviceFact(name="Vector registers", text="16 bytes"))
    assert DeviceFacts(device="d", facts=rows, peaks=found).text == "Cores             2\nVector registers  16 bytes"
