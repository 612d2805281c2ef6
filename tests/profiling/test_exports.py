"""Which file is what, several together, and the page they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.errors import ProfileError
from kforge.profiling import counters, digest_of_export, exports, roofline
from kforge.records import ImportedProfile, Peaks, Workload

DATA = Path(__file__).parent / "data"
NSYS = (DATA / "nsys_stats.csv").read_text()
NCU = (DATA / "ncu_raw_softmax.csv").read_text()
KERNELS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"


def test_all_summaries_of_nsys_in_one_file() -> None:
    export = exports.read(NSYS)
    assert export.tools == ("Nsight Systems",)
    rows = {row.name.split("<")[0]: (row.count, row.amount) for row in export.device_rows}
    assert rows["softmax"] == (100, pytest.approx(1.5e-3))
    assert rows["[CUDA memcpy Host-to-Device]"] == (2, pytest.approx(250e-6))
    assert len(rows) == 3
    assert [row.name for row in export.driver_calls] == ["cudaDeviceSynchronize", "cudaLaunchKernel", "cudaMemcpyAsync"]
    (size,) = export.sizes
    assert size.amount == pytest.approx(67.109e6)


def test_one_summary_a_file_in_another_unit() -> None:
    text = (
        '"Time (%)","Total Time (us)","Instances","Avg (us)","Name"\n"100.0","1500.5","10","150.05","void f<int, 4>()"'
    )
    (row,) = exports.read(text).device_rows
    assert (row.name, row.count, row.amount) == ("void f<int, 4>()", 10, pytest.approx(1.5005e-3))


def test_a_name_whose_commas_nobody_quoted() -> None:
    (row,) = exports.read(KERNELS + "100.0,7000,10,700,700,600,800,5,void k<int, float>\n").device_rows
    assert row.name == "void k<int, float>"


def test_calls_of_the_operating_system_are_not_the_drivers() -> None:
    head = KERNELS.replace("Instances", "Num Calls")
    with pytest.raises(ProfileError, match="nothing of the device was recorded"):
        exports.read(head + "90.0,900,3,300,300,300,300,0,poll\n")
    assert exports.read(head + "90.0,900,3,300,300,300,300,0,poll\n10.0,100,1,1,1,1,1,0,cuLaunchKernel\n").driver_calls


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not an export of a profiler that kforge knows"),
        ("name,time\nsoftmax,1\n", "not an export of a profiler that kforge knows"),
        ("{}", "not an export of a profiler that kforge knows"),
        (KERNELS.replace("Name", "Range"), "holds none of the reports of `nsys stats`"),
        (KERNELS, "its summaries are empty"),
        (KERNELS + '"99,5","7000,5",10,700,700,600,800,5,k\n', "not a number in the C locale's format"),
        (KERNELS + "99.5,1e999,10,700,700,600,800,5,k\n", "'1e999' is negative or too large"),
        (KERNELS + "99.5,1e300,10,700,700,600,800,5,k\n", "'1e300' is negative or too large"),
        (KERNELS + "99.5,7000,1e999,700,700,600,800,5,k\n", "'1e999' is negative or too large"),
        (KERNELS + "99.5,7000,1e30,700,700,600,800,5,k\n", "'1e30' is negative or too large"),
        (KERNELS + "99.5,-7000,-5,700,700,600,800,5,k\n", "'-7000' is negative or too large"),
    ],
    ids=[
        "empty",
        "other csv",
        "json",
        "ranges",
        "no rows",
        "decimal comma",
        "infinite time",
        "huge time",
        "infinite count",
        "huge count",
        "negative",
    ],
)
def test_anything_else_is_refused_with_one_line(text: str, why: str) -> None:
    with pytest.raises(ProfileError) as refused:
        exports.read(text)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"SQLite format 3\x00", "an SQLite database, not an export"),
        (b"\xff\x00\x81", "not text"),
        (b"a\x00b", "not text"),
    ],
)
def test_a_binary_file(content: bytes, why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        exports.decoded(content)


def test_text_as_windows_writes_it() -> None:
    assert exports.read(exports.decoded(NCU.encode("utf-16"))).kernels == exports.read(NCU).kernels


def test_files_about_the_same_kernel_complete_each_other() -> None:
    raw, details = (exports.read((DATA / name).read_text()) for name in ("ncu_raw_matmul.csv", "ncu_details.csv"))
    (joined,) = exports.together([details, raw]).kernels
    assert joined.launches == 1, "the second file is about the same launches, not about more of them"
    one_launch = raw.kernels[0].figures[counters.DRAM_BYTES] / 2
    both = {**raw.kernels[0].figures, **details.kernels[0].figures, counters.DRAM_BYTES: one_launch}
    assert joined.figures == pytest.approx(both)
    assert joined.stalls == pytest.approx(raw.kernels[0].stalls)


def test_files_of_two_devices_are_not_put_together() -> None:
    other = exports.read(NCU.replace("NVIDIA H200", "NVIDIA L4"))
    with pytest.raises(ProfileError, match="different devices: NVIDIA H200 and NVIDIA L4"):
        exports.together([exports.read(NCU), other])


SOFTMAX = """\
Imported from         Nsight Compute, on NVIDIA H200
Bottleneck            memory bound: L2 cache at 76% of peak
Device time           38.05 µs in all that was recorded

Hot spots (device time of all that was recorded)
  share       time  calls  name
 100.0%   38.05 µs     2x  softmax

Kernel softmax (2 launches, 38.05 µs)
  share of peak       DRAM 49%, L2 76%, L1 56%, SM 67%; 44.8 MB a launch from and to DRAM
  occupancy           88% achieved, 100% possible, 3.88 waves of blocks
  launch              4096 blocks of 256 threads, 31 registers a thread, 8.256 kB of shared memory a block
  warps wait for      global or local memory 25%; shared memory or special functions 14%; the fixed latency of instructions 9.5%
  global access       loads touch 4 sectors of 32 B a request; stores touch 4 sectors of 32 B a request
                      coalesced are 4 where each thread moves 4 bytes, 16 where it moves 16
  arithmetic          tensor cores not used

Counters are taken one kernel at a time, with cold caches.
"""  # noqa: E501

TIMELINE = """\
Imported from         Nsight Systems
Bottleneck            memory bound: 69% of the roofline is reached
Device time a call    22.5 µs, over 100 recorded calls
Device peaks          4.3 TB/s, 50 TFLOP/s (NVIDIA H200 (sm_90))
Roofline floor        15.61 µs, memory bound
  memory              15.61 µs to move 67.11 MB, all data once
Share of the roof     69.4%
Achieved              2.983 TB/s

Hot spots (device time a call)
  share       time  calls  name
  66.7%      15 µs     1x  softmax
  22.2%       5 µs     2x  void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, float)
  11.1%     2.5 µs     1x  [CUDA memcpy Host-to-Device]

Notes
- cudaLaunchKernel: 3 times, 4 µs of the host's time each
- cudaMemcpyAsync: 0.02 times, 150 µs of the host's time each
- [CUDA memcpy Host-to-Device]: 671.1 kB in 0.02 operations
- The export does not say which device it is of; the peaks are of the device here
"""  # noqa: E501


def test_the_page_of_a_file_alone() -> None:
    made = digest_of_export(exports.read(NCU))
    assert made.digest_text == SOFTMAX
    assert made.roofline is made.seconds is None
    assert ImportedProfile.from_json(made.to_json()) == made


def test_the_page_with_a_problem_and_the_number_of_calls() -> None:
    workload = Workload(inputs=(), outputs=(), parameters=(), flops=0, bytes_moved=67_108_864)
    peaks = Peaks(device="NVIDIA H200 (sm_90)", bytes_per_second=4.3e12, flops_per_second=50e12)
    made = digest_of_export(exports.read(NSYS), calls=100, roofline=roofline(workload, peaks), workload=workload)
    assert made.digest_text == TIMELINE
    assert made.seconds == pytest.approx(22.5e-6)


def test_without_the_number_of_calls_no_time_a_call_is_claimed() -> None:
    workload = Workload(inputs=(), outputs=(), parameters=(), flops=0, bytes_moved=67_108_864)
    peaks = Peaks(device="NVIDIA H200 (sm_90)", bytes_per_second=4.3e12, flops_per_second=50e12)
    made = digest_of_export(exports.read(NSYS), roofline=roofline(workload, peaks), workload=workload)
    assert "Roofline floor" in made.digest_text
    assert "Share of the roof" not in made.digest_text
    assert made.bottleneck == ""
