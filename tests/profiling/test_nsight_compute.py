"""Exports of Nsight Compute: two real ones, and what a file may look like besides."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import ProfileError
from kforge.profiling import counters, exports, nsight_compute

DATA = Path(__file__).parent / "data"


def kernel_of(name: str):
    (kernel,) = exports.read((DATA / name).read_text()).kernels
    return kernel


def test_a_real_raw_page() -> None:
    kernel = kernel_of("ncu_raw_softmax.csv")
    assert (kernel.name, kernel.launches, kernel.share) == ("softmax", 2, 1.0)
    assert kernel.seconds == pytest.approx(19.168e-6 + 18.880e-6)
    figures = kernel.figures
    assert figures[counters.DRAM] == pytest.approx(0.490, abs=1e-3), "the mean by time of 48.30 and 49.74 %"
    assert figures[counters.L2] == pytest.approx(0.756, abs=1e-3)
    assert figures[counters.DRAM_BYTES] == 33_568_000 + 10_908_160 + 33_567_744 + 11_549_184
    assert figures[counters.SHARED_BYTES] == 8192 + 64
    assert (figures[counters.REGISTERS], figures[counters.BLOCKS], figures[counters.BLOCK_THREADS]) == (31, 4096, 256)
    assert (figures[counters.LOAD_SECTORS], figures[counters.STORE_SECTORS]) == (4, 4)
    assert next(iter(kernel.stalls)) == "long_scoreboard"
    assert "not_selected" not in kernel.stalls, "a warp that could have issued waits for nothing"
    assert sum(kernel.stalls.values()) < 1
    assert kernel.pipes == {"tensor cores": 0.0}
    assert kernel.limits == (), "all warps fit"
    # asked for by nobody when this file was made: absent, not zero
    assert not {counters.CONFLICTS, counters.LOCAL, counters.LOAD_USE} & figures.keys()
    assert exports.read((DATA / "ncu_raw_softmax.csv").read_text()).device == "NVIDIA H200"


def test_what_limits_occupancy_is_the_least_limit() -> None:
    assert kernel_of("ncu_raw_matmul.csv").limits == ("registers",)


def test_the_details_page_says_the_same_as_the_raw_one() -> None:
    raw, details = kernel_of("ncu_raw_matmul.csv"), kernel_of("ncu_details.csv")
    assert details.limits == raw.limits
    assert details.seconds == pytest.approx(raw.seconds / 2, rel=1e-2), "microseconds, and one launch"
    same = {counters.DRAM, counters.L2, counters.L1, counters.SM, counters.OCCUPANCY, counters.POSSIBLE_OCCUPANCY}
    same |= {counters.WAVES, counters.REGISTERS, counters.BLOCKS, counters.BLOCK_THREADS, counters.SHARED_BYTES}
    assert same == details.figures.keys()
    for figure in same:
        assert details.figures[figure] == pytest.approx(raw.figures[figure], rel=2e-2), figure


HEAD = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
HEAD += ',"Device","CC","gpu__time_duration.sum","dram__bytes_read.sum"'
HEAD += ',"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"'
HEAD += ',"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum","smsp__average_warp_latency_per_inst_issued.ratio"'
HEAD += ',"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"'
UNITS = '"","","","","","","","","","","","usecond","Mbyte","","","inst","inst"'


def row(identity: int, name: str, time: str, *rest: str) -> str:
    cells = [str(identity), "1", "p", "h", name, "1", "7", "(1, 1, 1)", "(1, 1, 1)", "0", "9.0", time, *rest]
    return ",".join(f'"{cell}"' for cell in cells)


def page(*rows: str) -> str:
    return "\n".join([HEAD, UNITS, *rows])


def test_kernels_are_ranked_by_their_time_and_units_are_scaled() -> None:
    text = page(
        row(0, "small", "5", "1.5", "0", "0", "n/a", "n/a"),
        row(1, "void big<float, 4>(float const*, int)", "1,020.5", "2", "30", "120", "10", "2.5"),
        row(2, "small", "15", "1.5", "0", "0", "n/a", "n/a"),
    )
    big, small = exports.read(text).kernels
    assert big.name == "void big<float, 4>(float const*, int)"
    assert (big.seconds, small.seconds) == (pytest.approx(1020.5e-6), pytest.approx(20e-6))
    assert big.share == pytest.approx(1020.5 / 1040.5)
    assert big.figures[counters.DRAM_BYTES] == 2e6
    assert big.figures[counters.CONFLICTS] == 0.25
    assert big.stalls == {"barrier": 0.25}
    assert small.launches == 2
    assert small.figures[counters.CONFLICTS] == 0.0, "no pass at all is no conflict"
    assert small.stalls == {}


def test_at_most_the_first_launches_are_read_with_all_their_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cause: of the details page one launch more was read, and then no further metric of any launch."""
    monkeypatch.setattr(nsight_compute, "MAX_LAUNCHES", 2)
    raw = page(*(row(number, f"kernel {number}", "1", "1", "0", "1", "1", "1") for number in range(4)))
    assert {kernel.name for kernel in exports.read(raw).kernels} == {"kernel 0", "kernel 1"}
    metrics = [("gpu__time_duration.sum", "nsecond"), ("launch__grid_size", "")]
    details = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n' + "\n".join(
        f'"{number}","1","kernel {number}","{metric}","{unit}","7"' for metric, unit in metrics for number in range(4)
    )
    kernels = exports.read(details).kernels
    assert {kernel.name: kernel.figures for kernel in kernels} == {
        f"kernel {number}": {counters.BLOCKS: 7.0} for number in range(2)
    }


def test_the_last_table_counts_and_what_surrounds_it_does_not() -> None:
    forged = page(row(0, "forged", "1", "1", "0", "1", "1", "1"))
    real = page(row(0, "real", "1", "1", "0", "1", "1", "1"))
    (kernel,) = exports.read(f"hello\n{forged}\n==PROF== Disconnected\n{real}\n==WARNING== a word\n").kernels
    assert kernel.name == "real"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (page(), "it holds no launch: no kernel was profiled"),
        (page(row(0, "k", "1,5", "1", "0", "1", "1", "1")), "'1,5' is not a number in the C locale's format"),
        ('"ID","Process ID","Process Name"\n', "neither metrics nor launches; use --page raw or --page details"),
    ],
    ids=["empty", "decimal comma", "another page"],
)
def test_what_would_be_misread_is_refused(text: str, why: str) -> None:
    with pytest.raises(ProfileError, match=r"^[^\n]*$") as refused:
        exports.read(text)
    assert why in str(refused.value)


def test_figures_that_the_tools_own_sets_have_under_other_names() -> None:
    shared = "l1tex__data_{}_pipe_lsu_mem_shared_op_{}.sum"
    names = {shared.format("bank_conflicts", op): value for op, value in (("ld", "20"), ("st", "10"))}
    names |= {f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum": "50" for op in ("ld", "st")}
    names["smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"] = "8"
    fixed = [name.strip('"') for name in HEAD.split(",")][:11]
    values = ["0", "1", "p", "h", "k", "1", "7", "", "", "0", "9.0", *names.values()]
    text = "\n".join([",".join([*fixed, *names]), "," * (len(values) - 1), ",".join(values)])
    (kernel,) = exports.read(text).kernels
    assert kernel.figures == {counters.CONFLICTS: 0.3, counters.LOAD_USE: 0.25}


@given(st.lists(st.text(max_size=60), max_size=12).map("\n".join), st.booleans())
def test_nothing_but_a_refusal_comes_of_anything_else(noise: str, after_header: bool) -> None:
    with contextlib.suppress(ProfileError):
        exports.read(f"{HEAD}\n{UNITS}\n{noise}" if after_header else noise)


def test_the_header_may_have_a_byte_order_mark_and_no_quotes() -> None:
    plain = (DATA / "ncu_raw_softmax.csv").read_text().splitlines()
    start = nsight_compute.header_at(plain)
    assert start is not None
    plain[start] = "\ufeff" + plain[start].replace('"', "")
    (kernel,) = exports.read("\n".join(plain[start:])).kernels
    assert kernel.launches == 2
