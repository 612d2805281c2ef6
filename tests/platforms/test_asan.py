"""Which compilers have a sanitizer, and what is left of its report."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from kforge.platforms import NoSanitizer, Sanitizer, asan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sanitizers are only used on Linux")

OVERFLOW = """\
what the program printed before
=================================================================
==21572==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x6120001e7940 at pc 0x7f7c9ee61441 bp 0x7f7 sp 0x7f7
READ of size 4 at 0x6120001e7940 thread T2
    #0 0x7f7c9ee61440 in at /usr/include/c++/12/bits/stl_vector.h:1123
    #1 0x7f7c9ee61440 in row_sum(float const*, long)._omp_fn.0 /tmp/cache/build-uklaf12g/kernel.cpp:6
    #2 0x7f7cc0e1b4bd in gomp_thread_start (/venv/torch/lib/libgomp.so.1+0x1b4bd)

0x6120001e7940 is located 0 bytes to the right of 256-byte region [0x6120001e7840,0x6120001e7940)
allocated by thread T0 here:
    #0 0x7f7cc34b7ffd in __interceptor_posix_memalign ../../src/libsanitizer/asan/asan_malloc_linux.cpp:145
    #1 0x7f7cbf761f7e in c10::alloc_cpu(unsigned long) (/venv/torch/lib/libc10.so+0x91f7e)
    #2 0x7f7cbf711331 in c10::DefaultCPUAllocator::allocate(unsigned long) (/venv/torch/lib/libc10.so+0x41331)

Thread T2 created by T0 here:
    #0 0x7f7cc3449726 in __interceptor_pthread_create ../../src/libsanitizer/asan/asan_interceptors.cpp:207

SUMMARY: AddressSanitizer: heap-buffer-overflow /tmp/cache/build-uklaf12g/kernel.cpp:6 in row_sum
Shadow bytes around the buggy address:
=>0x0c2480034f20: 00 00 00 00 00 00 00 00[fa]fa fa fa fa fa fa fa
==21572==ABORTING
"""

DOUBLE_FREE = """\
==9==ERROR: AddressSanitizer: attempting double-free on 0x6110007386c0 in thread T0:
    #0 0x7f2bdbaba038 in operator delete[](void*) ../../src/libsanitizer/asan/asan_new_delete.cpp:155
    #1 0x7f2bb7565982 in (/venv/torch/lib/libc10.so+0x91f7e)

0x6110007386c0 is located 0 bytes inside of 256-byte region [0x6110007386c0,0x6110007387c0)
freed by thread T0 here:
    #0 0x7f2bdbaba038 in operator delete[](void*) ../../src/libsanitizer/asan/asan_new_delete.cpp:155
    #1 0x7f2bb7565982 in f /b/kernel.cpp:27

previously allocated by thread T0 here:
    #0 0x7f2bdbab9628 in operator new[](unsigned long) ../../src/libsanitizer/asan/asan_new_delete.cpp:98

SUMMARY: AddressSanitizer: double-free
"""

MISALIGNED = """\
kernel.cpp:24:27: runtime error: load of misaligned address 0x6120001e7841 for type 'const float', which requires 4 byte alignment
0x6120001e7841: note: pointer points here
 00 00 00  ff ff ff ff ff ff ff ff  ff ff ff ff ff ff ff ff
              ^
    #0 0x7f347c3528a2 in misaligned /tmp/cache/build-uklaf12g/kernel.cpp:24
    #1 0x7f349fb0af79  (/lib/x86_64-linux-gnu/libffi.so.8+0x6f79)
"""  # noqa: E501 - as it was printed


def test_an_overflow_is_cut_down_to_what_helps() -> None:
    report = asan.read(OVERFLOW)
    assert report is not None
    assert report.reason == (
        "AddressSanitizer: heap-buffer-overflow, READ of size 4 in row_sum(float const*, long) at kernel.cpp:6, "
        "0 bytes after 256-byte region"
    )
    assert report.log.splitlines() == [
        "AddressSanitizer: heap-buffer-overflow",
        "READ of size 4",
        "    in row_sum(float const*, long) at kernel.cpp:6",
        "0 bytes after 256-byte region",
        "allocated:",
        "    in torch, for a tensor",
    ]
    assert not report.exhausted


def test_a_place_of_another_moment_is_not_the_place_of_the_error() -> None:
    report = asan.read(DOUBLE_FREE)
    assert report is not None
    assert report.reason == "AddressSanitizer: attempting double-free, 0 bytes inside of 256-byte region"
    assert report.log.splitlines()[-2:] == ["freed:", "    in f at kernel.cpp:27"]


def test_undefined_behaviour_is_told_without_its_address() -> None:
    report = asan.read(MISALIGNED)
    assert report is not None
    assert report.reason == (
        "UndefinedBehaviorSanitizer: load of misaligned address for type 'const float', which requires 4 byte "
        "alignment in misaligned at kernel.cpp:24"
    )


def test_the_first_of_two_reports_counts() -> None:
    first = asan.read(MISALIGNED + OVERFLOW)
    assert first is not None
    assert first.reason.startswith("UndefinedBehaviorSanitizer")
    assert asan.read("Fatal Python error: Aborted\n") is None
    exhausted = asan.read("==7==ERROR: AddressSanitizer: out of memory: allocator is trying to allocate 0x9 bytes\n")
    assert exhausted is not None
    assert exhausted.exhausted


def test_a_hostile_log_is_read_quickly() -> None:
    for line in ("    #0 0x7f " + "in a:1 " * 3000, "a:1" * 7000, "/a:1 0xabcdef1 " * 1500, "==1==" + "\n" * 20000):
        asan.read(f"==1==ERROR: AddressSanitizer: x\n{line}\n0x12 is located {line}\n")
        asan.read(line)


def compiler(folder: Path, script: str, name: str = "g++") -> None:
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def test_compilers_without_one_say_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = asan.find()
    assert isinstance(missing, NoSanitizer)
    assert missing.reason.startswith("no C++ compiler found")
    compiler(tmp_path, 'echo "Ubuntu clang version 18.1"', "clang++")
    assert asan.find() == NoSanitizer(
        f"{tmp_path}/clang++ is a clang, whose sanitizers kforge does not use; install g++"
    )
    compiler(tmp_path, 'case "$1" in --version) echo "g++ 13.2.0";; *) echo "${1#*=}";; esac')
    assert asan.find() == NoSanitizer(f"{tmp_path}/g++ has no libasan.so; install the compiler's sanitizer libraries")


def test_a_linker_script_leads_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libasan", "libubsan"):
        (tmp_path / f"{name}.so.8").write_bytes(b"\x7fELF and more")
        (tmp_path / f"{name}.so").write_text(f"/* GNU ld script */\nINPUT ( {tmp_path}/{name}.so.8 )\n")
    answers = [
        '--version) echo "g++ (GCC) 14.2.1 20250110"',
        f'-print-file-name=*) echo "{tmp_path}/${{1#*=}}"',
        f'*) exec {shutil.which("g++")} "$@"',
    ]
    compiler(tmp_path, f'case "$1" in {";; ".join(answers)};; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = asan.find()
    assert isinstance(found, Sanitizer)
    assert found.name == "ASan and UBSan of g++ 14.2.1"
    assert found.runtimes[0] == f"{tmp_path}/libasan.so.8"
    assert found.environment["LD_PRELOAD"] == ":".join(found.runtimes)
    (tmp_path / "libasan.so.8").unlink()
    assert isinstance(asan.find(), NoSanitizer)
