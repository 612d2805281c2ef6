"""Building OpenCL C with the installed driver: the cache, and messages about wrong sources."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kforge import inline
from kforge.inline import CompileError, ToolchainError
from kforge.inline.opencl import device, translation, types


def test_an_error_has_the_line_and_the_whole_log() -> None:
    with pytest.raises(CompileError) as caught:
        inline.compile("__kernel void a(__global float* x) {\n    x[0] = y;\n}", "opencl")
    assert str(caught.value).startswith("kernel.cl:2:12: error: use of undeclared identifier 'y'")
    assert "kernel.cl:2:12: error:" in caught.value.log


@pytest.mark.parametrize(
    ("line", "as_others_write_it"),
    [
        ("error: /tmp/cache/tempfile_R9H1Og.cl:2:10: no y", "kernel.cl:2:10: error: no y"),
        ("<kernel>:2:10: error: no y", "kernel.cl:2:10: error: no y"),
        ("input.cl:2:10: warning: unused", "kernel.cl:2:10: warning: unused"),
        ("1:2:10: error: no y", "kernel.cl:2:10: error: no y"),
        ("Device cpu failed to build the program", "Device cpu failed to build the program"),
    ],
)
def test_messages_of_all_drivers_get_one_form(line: str, as_others_write_it: str) -> None:
    assert translation.plain(line) == as_others_write_it


def test_a_source_needs_a_kernel_that_can_be_called() -> None:
    with pytest.raises(CompileError, match="the source has no kernel: write one as __kernel void"):
        inline.compile("float twice(float x) { return 2 * x; }", "opencl")
    with pytest.raises(CompileError, match="take: parameter 2 'float4 v' cannot be passed from Python"):
        inline.compile("__kernel void take(__global float* x, float4 v) {}", "opencl")


def test_flags_reach_the_compiler() -> None:
    source = "__kernel void fill(__global int* out) { out[get_global_id(0)] = VALUE; }"
    out = torch.zeros(3, dtype=torch.int32)
    for value in (4, 5):
        library = inline.compile(source, "opencl", flags=[f"-DVALUE={value}"])
        library.fill(out, threads=3, group_size=1)
        assert out.tolist() == [value] * 3
    with pytest.raises(CompileError, match="VALUE"):
        inline.compile(source, "opencl")


def test_a_built_program_is_taken_from_the_cache(cache: Path, scale_source: str) -> None:
    inline.compile(scale_source, "opencl")
    (entry,) = (cache / "opencl").iterdir()
    before = entry.stat()
    library = inline.compile(scale_source, "opencl")
    assert entry.stat().st_mtime_ns == before.st_mtime_ns
    x = torch.randn(10)
    out = torch.empty_like(x)
    library.scale(x, out, 10, 2.0, threads=10)
    assert torch.equal(out, 2 * x)


def test_a_cached_program_that_the_driver_refuses_is_built_again(scale_source: str) -> None:
    opened = device.open_device()
    program = translation.translate(opened, scale_source, ())
    head = translation._entry(opened, program).partition(b"\n")[0]
    assert translation._loaded(opened, head + b"\nno program") is None


def test_a_library_is_copied_like_any_other_value(scale_source: str) -> None:
    library = pickle.loads(pickle.dumps(inline.compile(scale_source, "opencl")))
    kernel = pickle.loads(pickle.dumps(library.scale))
    x, out = torch.ones(4), torch.empty(4)
    kernel(x, out, 4, 3.0, threads=4)
    assert out.tolist() == [3.0] * 4


def test_without_a_driver_the_command_that_installs_one_is_named(tmp_path: Path, scale_source: str) -> None:
    program = (
        "from kforge import inline\n"
        f"try: inline.compile({scale_source!r}, 'opencl')\n"
        "except inline.ToolchainError as error: print(error)"
    )
    environment = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "no OpenCL driver finds a device here; install one: apt install pocl-opencl-icd\n"


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(ToolchainError, match=r"pyopencl cannot be imported .*; install it: pip install pyopencl"):
        device._package()


def test_types_of_parameters() -> None:
    assert types.element("float4", pointer=False) is None
    packed = types.element("float3", pointer=True)
    assert packed is not None
    assert (packed.dtypes, packed.alignment) == (("float32",), 16)
    own = types.element("Particle", pointer=True)
    assert own is not None
    assert own.dtypes == (), "a type of the source's own takes any tensor"
    assert types.element("Particle", pointer=False) is None
