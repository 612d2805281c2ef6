"""Launches of OpenCL kernels on tensors in host memory."""

import threading

import pytest
import torch

from kforge import inline
from kforge.inline import LaunchError, Library, UnknownKernel, launches
from kforge.inline.opencl import device


@pytest.fixture
def scale(scale_source: str) -> Library:
    return inline.compile(scale_source, "opencl")


@pytest.mark.parametrize("count", [1, 255, 257, 100_003])
def test_the_kernel_computes_and_bounds_hold(scale: Library, count: int) -> None:
    x = torch.randn(count)
    out = torch.full((count + 7,), torch.nan)
    assert scale.scale(x, out, count, 2.5, threads=count) is None
    assert torch.equal(out[:count], 2.5 * x)
    assert out[count:].isnan().all()


def test_every_kind_of_argument_arrives() -> None:
    library = inline.compile(
        """
        __kernel void take(__global double* out, uchar small, short medium, float f, double d, long big, uint wide,
                           __global const ushort* bits, __global const uchar* mask, __constant float4* four,
                           global const char* bytes) {
            out[0] = small; out[1] = medium; out[2] = f; out[3] = d; out[4] = big; out[5] = wide;
            out[6] = bits[0]; out[7] = mask[0]; out[8] = four[1].z; out[9] = bytes[0];
        }
        """,
        "opencl",
    )
    out = torch.zeros(10, dtype=torch.float64)
    library.take(
        out, 255, -7, 0.5, 1e300, -(2**52), 2**32 - 1, torch.tensor([1.0], dtype=torch.bfloat16),
        torch.tensor([True]), torch.arange(8.0), torch.tensor([-3], dtype=torch.int8), threads=1, group_size=1,
    )  # fmt: skip
    assert out.tolist() == [255, -7, 0.5, 1e300, -(2**52), 2**32 - 1, 0x3F80, 1, 6, -3]


def test_local_memory_and_barriers() -> None:
    library = inline.compile(
        """
        __kernel void reverse(__global int* x, __local int* kept, __local int* again) {
            const int i = get_local_id(0), last = get_local_size(0) - 1;
            kept[i] = x[get_global_id(0)];
            barrier(CLK_LOCAL_MEM_FENCE);
            again[i] = kept[last - i];
            barrier(CLK_LOCAL_MEM_FENCE);
            x[get_global_id(0)] = again[i];
        }
        """,
        "opencl",
    )
    x = torch.arange(128, dtype=torch.int32)
    library.reverse(x, threads=128, group_size=64, shared=(256, 256))
    assert x.tolist() == [*range(63, -1, -1), *range(127, 63, -1)]
    with pytest.raises(LaunchError, match="reverse: has 2 parameters in __local memory; shared must have the bytes"):
        library.reverse(x, threads=128, group_size=64)
    most = device.open_device().shared_bytes
    with pytest.raises(LaunchError, match=f"shared must be 1 to {most} bytes in all on this device"):
        library.reverse(x, threads=128, group_size=64, shared=(4, most))


def test_three_dimensions() -> None:
    library = inline.compile(
        """
        __kernel void mark(__global int* out, int nx, int ny, int nz) {
            const int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
            if (x < nx && y < ny && z < nz) out[(z * ny + y) * nx + x] = 100 * z + 10 * y + x;
        }
        """,
        "opencl",
    )
    out = torch.full((2, 3, 5), -1, dtype=torch.int32)
    library.mark(out, 5, 3, 2, threads=(5, 3, 2), group_size=(4, 2, 1))
    z, y, x = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(5), indexing="ij")
    assert torch.equal(out, (100 * z + 10 * y + x).int())


def test_a_tensor_may_be_input_and_output(scale: Library) -> None:
    x = torch.randn(1000)
    expected = 3 * x
    scale.scale(x, x, 1000, 3.0, threads=1000)
    assert torch.equal(x, expected)


def test_nothing_is_nothing_to_do(scale: Library) -> None:
    empty = torch.empty(0)
    scale.scale(empty, empty, 0, 1.0, threads=0)
    scale.scale(empty, empty, 0, 1.0, threads=1)


def test_what_does_not_fit_is_said_in_one_line(scale: Library) -> None:
    x = torch.randn(8)
    for launch, message in {
        lambda: scale.scale(x, x, 8, threads=8): r"scale: takes 4 arguments \(x, out, n, factor\), got 3",
        lambda: scale.scale(x.double(), x, 8, 1.0, threads=8): r"argument 1 \(x\) must be float32, got float64",
        lambda: scale.scale(x[::2], x, 8, 1.0, threads=8): r"argument 1 \(x\) must be contiguous",
        lambda: scale.scale(x, x, 2**40, 1.0, threads=8): r"argument 3 \(n\) must fit int",
        lambda: scale.scale(x, x, 8, 1.0, threads=-1): "threads must be one to three numbers from 0 on",
        lambda: scale.scale(x, x, 8, 1.0, threads=8, group_size=2**30): "scale: a group has at most",
        lambda: scale.scale(x, x, 8, 1.0, threads=8, shared=4): "scale: has 0 parameters in __local memory",
    }.items():
        with pytest.raises(LaunchError, match=message):
            launch()
    with pytest.raises(UnknownKernel, match="no kernel named 'shrink' in this library; it has: scale"):
        scale.shrink(x, threads=8)


def test_a_group_size_that_the_source_requires() -> None:
    library = inline.compile(
        "__attribute__((reqd_work_group_size(32, 1, 1))) __kernel void size(__global int* out)"
        "{ out[get_global_id(0)] = get_local_size(0); }",
        "opencl",
    )
    out = torch.zeros(64, dtype=torch.int32)
    library.size(out, threads=64)
    assert out.tolist() == [32] * 64
    with pytest.raises(LaunchError, match=r"size: its source requires groups of \(32, 1, 1\), got group_size=16"):
        library.size(out, threads=64, group_size=16)


def test_a_device_with_copies_takes_no_tensors_that_overlap(scale: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.open_device(), "in_host_memory", False)
    x = torch.ones(100)
    with pytest.raises(LaunchError, match="scale: two tensors overlap in memory"):
        scale.scale(x[:60], x[40:], 60, 2.0, threads=60)
    scale.scale(x[:50], x[50:], 50, 2.0, threads=50)
    assert x[50:].tolist() == [2.0] * 50


def test_launches_are_recorded_by_the_devices_clock(scale: Library) -> None:
    x = torch.ones(1000)
    with launches.recorded() as found:
        scale.scale(x, x, 1000, 1.0, threads=1000)
        scale.scale(x, x, 1000, 1.0, threads=1000)
    scale.scale(x, x, 1000, 1.0, threads=1000)
    assert [one.name for one in found] == ["scale", "scale"]
    assert 0 < found[0].start <= found[0].end <= found[1].start <= found[1].end


def test_threads_of_a_program_may_launch_at_once(scale: Library) -> None:
    wrong = []

    def launch(factor: float) -> None:
        x, out = torch.randn(5000), torch.empty(5000)
        for _ in range(20):
            scale.scale(x, out, 5000, factor, threads=5000)
            if not torch.equal(out, factor * x):
                wrong.append(factor)

    threads = [threading.Thread(target=launch, args=(float(one),)) for one in (2, 3, 4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []
