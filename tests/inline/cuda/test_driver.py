"""What reaches the driver, seen by a stand-in for it: the machine that runs these tests need not have a GPU."""

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from kforge.inline import LaunchError, ToolchainError
from kforge.inline.arguments import MemoryKind
from kforge.inline.cuda import declarations, driver, library
from kforge.inline.cuda.resources import Resources
from kforge.inline.cuda.translation import Translation

SOURCE = "__global__ void k(float* x, int64_t n, float factor, bool flag) {}"


class Seen(ctypes.Structure):
    _fields_ = (
        ("groups", ctypes.c_uint * 3), ("size", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("function", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("extra", ctypes.c_void_p),
        ("pointer", ctypes.c_void_p), ("integer", ctypes.c_longlong), ("real", ctypes.c_float),
        ("flag", ctypes.c_ubyte),
        ("launches", ctypes.c_int), ("allowed", ctypes.c_int), ("pushes", ctypes.c_int), ("pops", ctypes.c_int),
        ("resets", ctypes.c_int), ("modules", ctypes.c_int), ("fail_next", ctypes.c_int),
    )  # fmt: skip


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """A fresh stand-in is the driver, host memory is its device's, and this is what it has seen."""
    built = tmp_path / "libstand_in.so"
    source = Path(__file__).with_name("stand_in_driver.c")
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", str(source), "-o", str(built)], check=True)
    monkeypatch.setattr(driver, "SONAMES", (str(built),))
    monkeypatch.setattr(library, "DEVICE", MemoryKind(lambda tensor: True, "on a CUDA device"))
    monkeypatch.setattr(library, "_stream", lambda index: 0x7777)
    monkeypatch.setattr(library, "_current_device", lambda: 0)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: 0)
    driver.load.cache_clear()
    yield Seen.in_dll(ctypes.CDLL(str(built)), "seen")
    driver.load.cache_clear()


@pytest.fixture
def kernel():
    built = Translation(b"image", {"k": "symbol"}, {"symbol": Resources(40, 1000, 0, 0, 0)})
    return library.CudaKernel(
        declarations.parse(SOURCE)["k"].signature(), built, library._Image(b"image"), "symbol", ()
    )


def test_arguments_and_shape_arrive_as_they_were_given(seen, kernel):
    x = torch.ones(4)
    kernel(x, -5, 2.5, True, threads=1000)
    assert (list(seen.groups), list(seen.size), seen.shared) == ([4, 1, 1], [256, 1, 1], 0)
    assert (seen.pointer, seen.integer, seen.real, seen.flag) == (x.data_ptr(), -5, 2.5, 1)
    assert (seen.function, seen.stream, seen.extra) == (0xFEEDFACECAFE, 0x7777, None)
    kernel(x, 2**40, 0.5, False, threads=(1000, 7), group_size=[32, 2], shared=100)
    assert (list(seen.groups), list(seen.size), seen.shared) == ([32, 4, 1], [32, 2, 1], 100)
    assert (seen.integer, seen.flag) == (2**40, 0)
    assert seen.pushes == seen.pops == 2


def test_a_shape_seen_before_is_launched_like_the_first_time(seen, kernel):
    x = torch.ones(4)
    for _ in range(2):
        kernel(x, 1, 1.0, True, threads=(70, 3), group_size=(32, 2))
        assert (list(seen.groups), list(seen.size)) == ([3, 2, 1], [32, 2, 1])
    assert seen.launches == 2


def test_kernels_of_one_build_share_a_module(seen):
    parsed = declarations.parse(SOURCE + SOURCE.replace(" k(", " l("))
    built, image = Translation(b"image", {}, {"symbol": Resources(40, 0, 0, 0, 0)}), library._Image(b"image")
    kernels = [library.CudaKernel(one.signature(), built, image, "symbol", ()) for one in parsed.values()]
    for kernel in kernels:
        kernel(torch.ones(4), 1, 1.0, True, threads=1)
    assert (len(kernels), seen.launches, seen.modules) == (2, 2, 1)


def test_no_threads_are_no_launch(seen, kernel):
    kernel(torch.empty(0), 0, 1.0, True, threads=0)
    assert seen.launches == 0


def test_leave_for_much_shared_memory_is_asked_for_once(seen, kernel):
    x = torch.ones(4)
    kernel(x, 1, 1.0, True, threads=1, shared=(48 << 10) - 1000)
    assert seen.allowed == 0
    kernel(x, 1, 1.0, True, threads=1, shared=100_000)
    assert seen.allowed == 100_000
    kernel(x, 1, 1.0, True, threads=1, shared=50_000)
    assert (seen.allowed, seen.shared) == (100_000, 50_000)
    assert kernel.occupancy(128, 60_000) == 3 * 128 / 2048


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            {"group_size": 1024},
            "k: at most 512 threads per group because of its 40 registers per thread and its launch bounds, got 1024",
        ),
        ({"shared": 231_449}, "k: shared must be 0 to 231448 bytes on this device, got 231449"),
        ({"shared": 1.5}, "k: shared must be 0 to 231448 bytes on this device, got 1.5"),
        ({"shared": -1}, "k: shared must be 0 to 231448 bytes on this device, got -1"),
    ],
)
def test_what_does_not_fit_the_device_is_one_clear_line(seen, kernel, shape, message):
    with pytest.raises(LaunchError) as caught:
        kernel(torch.ones(4), 1, 1.0, True, threads=1, **shape)
    assert str(caught.value) == message
    assert seen.pushes == seen.pops
    assert seen.launches == 0


def test_a_failed_launch_says_the_drivers_words(seen, kernel):
    x = torch.ones(4)
    seen.fail_next = 700
    with pytest.raises(LaunchError) as caught:
        kernel(x, 1, 1.0, True, threads=1)
    assert str(caught.value) == (
        "k: the launch failed: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal access); "
        "an earlier kernel failed, and no kernel can run in this process any more"
    )
    seen.fail_next = 999
    with pytest.raises(LaunchError, match=r"^k: the launch failed: result 999$"):
        kernel(x, 1, 1.0, True, threads=1)
    assert seen.pushes == seen.pops == 2


def test_the_device_is_described(seen):
    native = driver.load()
    assert (native.name(0), native.architecture(0), native.version()) == ("Stand-in", "sm_90", (13, 0))
    assert native.file.name == "libstand_in.so"
    native.reset_persisting_cache(0)
    assert seen.resets == 1
    with pytest.raises(LaunchError, match=r"^looking for device 1 failed: result 101$"):
        native.name(1)


def test_no_driver_is_one_line(monkeypatch):
    monkeypatch.setattr(driver, "SONAMES", ("libno_such_driver.so.1",))
    driver.load.cache_clear()
    with pytest.raises(ToolchainError, match=r"^no NVIDIA driver found \(libno_such_driver\.so\.1 is not installed\)$"):
        driver.load()
    driver.load.cache_clear()
