"""Oclgrind as a sanitizer: its reports, and real kernels with errors in its simulator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kforge import platforms
from kforge.errors import PlatformError
from kforge.platforms import NoSanitizer, Sanitizer
from kforge.platforms.opencl import oclgrind

BOUNDS = """
Invalid read of size 4 at global memory address 0x1000000000040
\tKernel: shift
\tEntity: Global(15,0,0) Local(15,0,0) Group(0,0,0)
\t  %0 = load float, float addrspace(1)* %arrayidx, align 4, !dbg !28, !tbaa !29
\tAt line 4 (column 14) of input.cl:
\t  (source not available)

"""
RACE = """
Read-write data race at local memory address 0x1000000000004
\tKernel: turn

\tFirst entity:  Global(1,0,0) Local(1,0,0) Group(0,0,0)
\t  store float %conv1, float addrspace(3)* %arrayidx, align 4, !dbg !27, !tbaa !28
\tAt line 8 (column 12) of input.cl:
\t  (source not available)

\tSecond entity: Global(0,0,0) Local(0,0,0) Group(0,0,0)
\t  %0 = load float, float addrspace(3)* %arrayidx4, align 4, !dbg !36, !tbaa !28
\tAt line 9 (column 14) of input.cl:
\t  (source not available)

"""
PROGRAM = """
import sys
from pathlib import Path

import torch

from kforge import inline, platforms

inline.configure(cache=Path(sys.argv[1]))
library = inline.compile('''
__kernel void shift(__global const float* x, __global float* out) { out[get_global_id(0)] = x[get_global_id(0) + 1]; }
__kernel void turn(__global float* x) {
    __local float kept[16];
    const int i = get_local_id(0);
    kept[i] = x[i];
    x[i] = kept[15 - i];
}
__kernel void part(__global float* x) { if (get_local_id(0) < 3) barrier(CLK_LOCAL_MEM_FENCE); x[get_local_id(0)] = 1; }
__kernel void fine(__global float* x) { x[get_global_id(0)] = 1; }
''', "opencl")
x = torch.zeros(16)
for name in ("shift", "turn", "part", "fine"):
    sys.stderr.write(f"=== {name}\\n")
    sys.stderr.flush()
    getattr(library, name)(x, *[torch.zeros(16)] * (name == "shift"), threads=16, group_size=16)
platforms.find("opencl").adapter.plant("kforge_planted_bounds")
"""


@pytest.fixture(scope="module")
def sanitizer() -> Sanitizer:
    found = platforms.find("opencl").adapter.sanitizers()
    assert not isinstance(found, NoSanitizer), found
    return found[0]


def test_an_access_out_of_bounds() -> None:
    report = oclgrind.read(BOUNDS)
    assert report is not None
    assert report.reason == "Oclgrind: Invalid read of size 4 in global memory in shift at line 4"
    assert report.log.splitlines() == [
        "Invalid read of size 4 in global memory",
        "Entity: Global(15,0,0) Local(15,0,0) Group(0,0,0)",
        "    in shift at kernel.cl:4",
    ]


def test_a_race_has_both_places_and_others_are_counted() -> None:
    report = oclgrind.read(RACE + "a line of the program\n" + BOUNDS)
    assert report is not None
    assert report.reason == (
        "Oclgrind: Read-write data race in local memory in turn at lines 8 and 9 (and 1 more report)"
    )


def test_the_planted_error_is_no_finding() -> None:
    planted = BOUNDS.replace("shift", oclgrind.PLANTED)
    assert oclgrind.read("") is None
    assert oclgrind.read(planted) is None
    report = oclgrind.read(planted + BOUNDS)
    assert report is not None
    assert "in shift" in report.reason


def test_errors_of_real_kernels(sanitizer: Sanitizer, tmp_path: Path) -> None:
    command = [*sanitizer.wrapper, sys.executable, "-c", PROGRAM, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert sanitizer.proven(done.stderr), done.stderr
    found = {}
    for part in done.stderr.split("=== ")[1:]:
        report = sanitizer.read(part)
        found[part.split()[0]] = None if report is None else report.reason.partition(" (and ")[0]
    assert found == {
        "shift": "Oclgrind: Invalid read of size 4 in global memory in shift at line 2",
        "turn": "Oclgrind: Read-write data race in local memory in turn at lines 6 and 7",
        "part": "Oclgrind: Work-group divergence detected (barrier) in part at line 9",
        "fine": None,
    }


def test_a_program_without_a_kernel_is_not_checked(sanitizer: Sanitizer) -> None:
    assert sanitizer.unsuited("class ModelNew: pass") == "it has no OpenCL kernel"
    assert sanitizer.unsuited('inline.compile("kernel void f() {}", "opencl")') is None


def test_without_oclgrind_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert oclgrind.find() == NoSanitizer("no oclgrind found; install it: apt install oclgrind")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "oclgrind"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    assert oclgrind.find() == NoSanitizer(f"{command} has no driver oclgrind/liboclgrind-rt-icd.so beside it")


def test_no_other_error_can_be_planted() -> None:
    with pytest.raises(PlatformError, match="there is no planted error named thirst"):
        oclgrind.plant("thirst")
