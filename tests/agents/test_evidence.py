"""Quantities in the evidence are compared with what the agent was shown."""

import pytest

from kforge.agents.evidence import unfounded

SHOWN = """\
one call moves at least 4,096,004 bytes
time per call   412 us, 41.3 % of the roofline
aten::exp       298 µs   72.4 %
memory          9.8 GB/s of 21.5 GB/s measured
peak            61.2 GFLOP/s, L2 1.0 MiB
"""


@pytest.mark.parametrize(
    "evidence",
    [
        "41 % of the roof",
        "aten::exp takes 0.298 ms of 0.41 ms",
        "about 300 us in exp",
        "28 % is spent elsewhere",
        "9.8 GB/s against 21.5 GB/s",
        "4.1 MB are moved",
        "61 GFLOP/s and an L2 of 1 MiB",
        "three sweeps over 512 rows of 1000 floats, 8 threads",
        "it would be 2.4x faster, sm_90, float32",
        "no number at all",
    ],
)
def test_what_was_shown_may_be_rounded_and_written_in_another_unit(evidence):
    assert unfounded(evidence, SHOWN) == ()


@pytest.mark.parametrize(
    ("evidence", "invented"),
    [
        ("L2 hit rate 37 %", ("37 %",)),
        ("exp takes 350 us, 85% of the call", ("350 us", "85%")),
        ("12.5 GB/s of 21.5 GB/s", ("12.5 GB/s",)),
        ("a stall of 3.2 ms, again 3.2 ms", ("3.2 ms",)),
        ("41 GFLOP/s", ("41 GFLOP/s",)),
        ("2 KiB of spills", ("2 KiB",)),
    ],
)
def test_a_quantity_that_was_never_shown_is_found(evidence, invented):
    assert unfounded(evidence, SHOWN) == invented
