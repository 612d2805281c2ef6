"""What is left of compute-sanitizer's reports, whose kernels count, and how it is found.

The first four texts are an H200's, shortened; the others are composed after their form and that of the manual.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kforge import inline, platforms
from kforge.errors import PlatformError
from kforge.inline import ToolchainError, configuration
from kforge.inline.cuda import toolkit
from kforge.platforms import NoSanitizer
from kforge.platforms.nvidia import compute_sanitizer

if TYPE_CHECKING:
    from pathlib import Path

UNINITIALIZED = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at k+0x80 in kernel.cu:1
=========     by thread (64,0,0) in block (0,0,0)
=========     Address 0x7f2e2c800500
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch in driver.py:148
=========         Host Frame: __call__ in library.py:169
=========         Host Frame: <module> in bad.py:13
=========\x20
========= Uninitialized __global__ memory read of size 4 bytes
=========     at k+0x80 in kernel.cu:1
=========     by thread (65,0,0) in block (0,0,0)
=========     Address 0x7f2e2c800504
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch in driver.py:148
=========\x20
========= ERROR SUMMARY: 100 errors
"""

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at k+0xe0 in kernel.cu:1
=========     and Read access at k+0xf0 in kernel.cu:1 [1024 hazards]
=========\x20
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""

BARRIER = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at k+0xc0 in kernel.cu:1
=========     by thread (96,0,0) in block (0,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch in driver.py:148
"""

CLEAN = "========= COMPUTE-SANITIZER\ndone -13.476669311523438\n========= ERROR SUMMARY: 0 errors\n"

# composed
OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
what the program printed
========= Invalid __global__ write of size 4 bytes
=========     at void (anonymous namespace)::scale<float, (int)4>(const T1 *, T1 *, long)+0x70 in kernel.cu:12
=========     by thread (31,0,0) in block (7,0,0)
=========     Access at 0x7f6510c00400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6510c00000 of size 1,024 bytes
=========     Device Frame: void helper(float *)+0x40 in kernel.cu:3
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch in driver.py:148
=========\x20
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call to f.
=========     Saved host backtrace up to driver entry point at error
=========\x20
========= ERROR SUMMARY: 2 errors
"""

PLANTED = """\
========= Invalid __global__ write of size 4 bytes
=========     at kforge_planted_memcheck+0x30 in kernel.cu:2
=========     by thread (0,0,0) in block (0,0,0)
=========     Access at 0x7f6510c00400 is out of bounds
=========\x20
"""

TORCH = """\
========= Uninitialized __global__ memory read of size 16 bytes
=========     at void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2)+0x1a0
=========     by thread (0,0,0) in block (0,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward in candidate.py:20
=========\x20
"""

CUBLAS = """\
========= Invalid __shared__ read of size 16 bytes
=========     at some_internal_kernel(float *)+0x1a0
=========     by thread (0,0,0) in block (0,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cublasSgemm_v2 [0x8a3] in libcublas.so.13
=========\x20
"""

EXTENSION = """\
========= Invalid __global__ read of size 4 bytes
=========     at void scale_kernel<c10::Half>(const T1 *, T1 *, long)+0x70
=========     by thread (0,0,0) in block (1,0,0)
=========     Access to 0x7f6510c00400 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: scale(at::Tensor) [0x8a3] in extension.so
=========\x20
"""


def log_of(text: str) -> list[str]:
    report = compute_sanitizer.read(text)
    assert report is not None
    return [report.reason, *report.log.splitlines()]


def test_a_read_of_what_was_never_written() -> None:
    assert log_of(UNINITIALIZED) == [
        "Uninitialized __global__ memory read of size 4 bytes in k at kernel.cu:1, by thread (64,0,0) in block (0,0,0)",
        "Uninitialized __global__ memory read of size 4 bytes",
        "    in k at kernel.cu:1",
        "by thread (64,0,0) in block (0,0,0)",
    ]


def test_a_race_tells_both_sides() -> None:
    assert log_of(RACE) == [
        "Race reported between Write access in k at kernel.cu:1, and Read access at k in kernel.cu:1 [1024 hazards]",
        "Race reported between Write access",
        "    in k at kernel.cu:1",
        "and Read access at k in kernel.cu:1 [1024 hazards]",
    ]


def test_a_barrier_that_not_all_threads_reach() -> None:
    assert log_of(BARRIER) == [
        "Barrier error detected. Divergent thread(s) in warp. in k at kernel.cu:1, by thread (96,0,0) in block (0,0,0)",
        "Barrier error detected. Divergent thread(s) in warp.",
        "    in k at kernel.cu:1",
        "by thread (96,0,0) in block (0,0,0)",
    ]


def test_a_template_is_named_as_its_source_has_it_and_no_address_is_left() -> None:
    assert log_of(OUT_OF_BOUNDS)[1:] == [
        "Invalid __global__ write of size 4 bytes",
        "    in scale at kernel.cu:12",
        "    in scale at kernel.cu:3",
        "by thread (31,0,0) in block (7,0,0)",
        "Access is out of bounds",
        "is 1 bytes after the nearest allocation of size 1,024 bytes",
    ]


def test_what_is_no_error_of_a_kernel_is_none() -> None:
    assert compute_sanitizer.read(CLEAN) is None
    assert compute_sanitizer.findings(CLEAN) == []
    assert compute_sanitizer.read("") is None


def test_the_planted_error_proves_the_tool_and_is_no_finding() -> None:
    assert compute_sanitizer.reported("memcheck", PLANTED)
    assert not compute_sanitizer.reported("racecheck", PLANTED)
    assert not compute_sanitizer.reported("memcheck", CLEAN + OUT_OF_BOUNDS)
    assert not compute_sanitizer.reported("memcheck", "at kforge_planted_memcheck+0x30 in kernel.cu:2")
    assert compute_sanitizer.read(CLEAN + PLANTED) is None
    assert log_of(PLANTED + RACE)[2] == "    in k at kernel.cu:1"


def test_what_libraries_do_is_not_the_programs() -> None:
    assert [one.library for one in compute_sanitizer.findings(TORCH + CUBLAS + EXTENSION)] == [True, True, False]
    assert compute_sanitizer.read(TORCH + CUBLAS) is None
    assert log_of(TORCH + EXTENSION)[1:3] == ["Invalid __global__ read of size 4 bytes", "    in scale_kernel"]
    # named like one of cuBLAS's, but it has a line: those of cuBLAS have none
    own = RACE.replace(" k+", " gemv2T_kernel+")
    assert compute_sanitizer.read(own) is not None


def test_a_report_that_was_cut_off_at_the_beginning_of_the_log_is_left_out() -> None:
    assert log_of(UNINITIALIZED.partition("read of size 4 bytes\n")[2] + RACE)[1].startswith("Uninitialized")
    assert compute_sanitizer.read(BARRIER.partition("warp.\n")[2]) is None


def test_several_places_are_counted_once_each() -> None:
    assert log_of(UNINITIALIZED + RACE + BARRIER)[-1] == "and 2 more places"


def test_a_hostile_log_is_read_quickly() -> None:
    for line in ("at " * 9000, "at a+0x1 in b:1 " * 2000, "=========" * 3000, "=========     at " + "<(" * 9000):
        compute_sanitizer.read(f"========= x\n=========     {line}\n{line}\n========= {line}\n" * 3)


def test_a_program_without_kernels_has_nothing_to_look_at() -> None:
    assert compute_sanitizer.without_kernels("def forward(x): return torch.relu(x)") is not None
    assert compute_sanitizer.without_kernels('inline.compile("__global__ void f() {}", "cuda")') is None
    assert compute_sanitizer.without_kernels("import triton") is None


# --- the program itself --------------------------------------------------------------------------------------


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit with a compute-sanitizer that tells its version, as the only one on this machine."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(toolkit, "places", tuple)
    folder = tmp_path / "compute-sanitizer"
    folder.mkdir()
    program = folder / "compute-sanitizer"
    program.write_text("#!/bin/sh\necho 'NVIDIA (R) Compute Sanitizer'; echo 'Version 2025.3.1.0 (build 1) (public)'\n")
    program.chmod(0o755)
    (folder / "TreeLauncherSubreaper").touch()
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "compute-sanitizer"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return program


def test_four_tools_each_with_a_planted_error(tool: Path) -> None:
    found = compute_sanitizer.find(None)
    assert not isinstance(found, NoSanitizer)
    assert [one.planted for one in found] == ["memcheck", "initcheck", "synccheck", "racecheck"]
    assert {one.wrapper[0] for one in found} == {str(tool)}
    assert found[0].name == "compute-sanitizer 2025.3.1.0 memcheck"
    assert f"--padding={compute_sanitizer.PADDING}" in found[0].wrapper
    assert all(one.environment == {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} for one in found)
    # none looks at the libraries' kernels, so one that must know all that is written is for programs without them
    assert all(any("exclude" in option for option in one.wrapper) for one in found)
    assert [one.planted for one in found if one.blind_to is not None] == ["initcheck"]
    blind, program = found[1].blind_to, 'SOURCE = """__global__ void scale(float* x) {}"""'
    assert blind is not None
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    assert [blind(program, name) for name in ("scale(float*)", "Memset (Device)", fill)] == [False, False, True]


def test_what_is_missing_is_said_in_one_line(tool: Path) -> None:
    assert compute_sanitizer.find("no GPU") == NoSanitizer("compute-sanitizer needs a GPU: no GPU")
    tool.write_text("#!/bin/sh\n")
    assert compute_sanitizer.find(None) == NoSanitizer(f"{tool} does not report its version")
    tool.with_name("TreeLauncherSubreaper").unlink()  # as in some wheels
    missing = compute_sanitizer.find(None)
    assert isinstance(missing, NoSanitizer)
    assert missing.reason.startswith("no compute-sanitizer found")


def test_the_planted_kernels_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        toolkit.compiler()
    except ToolchainError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(configuration, "_current", configuration.Configuration(cache=tmp_path))
    library = inline.compile(compute_sanitizer._KERNELS, "cuda")
    assert dir(library) == sorted(f"kforge_planted_{tool}" for tool in compute_sanitizer.TOOLS)


def test_no_other_error_can_be_planted() -> None:
    with pytest.raises(PlatformError, match="no planted error named leak"):
        compute_sanitizer.plant("leak", "cuda")
    with pytest.raises(PlatformError, match="'null' has no planted error named memcheck"):
        platforms.find("null").adapter.plant("memcheck")


def test_it_is_found_without_torch() -> None:
    ask = "platforms.find('cuda').adapter.sanitizers()"
    probe = f"import sys; from kforge import platforms; {ask}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
