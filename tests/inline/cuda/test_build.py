"""Real builds by this machine's NVRTC; none needs a device."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kforge import inline
from kforge.inline import CompileError, LaunchError, ToolchainError
from kforge.inline.cuda import nvrtc as process
from kforge.inline.cuda import toolkit, translation

pytestmark = pytest.mark.usefixtures("nvrtc")


def build(source, flags=("-arch=sm_90",)):
    return inline.compile(source, "cuda", flags=list(flags))


def test_a_kernel_builds_and_says_what_it_takes():
    library = build("""
        __global__ void plain(float* x) { __shared__ float s[64]; s[threadIdx.x] = x[0]; __syncthreads(); x[1] = s[3]; }
        __global__ void indexed(float* x, int m) {
            float a[100];
            for (int i = 0; i < 100; i++) a[i] = x[i * m];
            for (int i = 0; i < m; i++) a[int(x[i]) % 100] += a[(i * m) % 100];
            x[0] = a[m];
        }
    """)
    assert dir(library) == ["indexed", "plain"]
    assert library.plain.resources().static_shared == 256
    assert library.plain.resources().local == 0
    assert library.indexed.resources().local >= 400
    assert 1 <= library.plain.resources().registers <= 255


def test_building_imports_no_torch(cache, scale_source):
    program = f"""
import sys
from pathlib import Path
from kforge import inline
inline.configure(cache=Path({str(cache)!r}))
library = inline.compile({scale_source!r}, "cuda")
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_second_build_comes_from_the_cache_and_damage_is_built_anew(cache, scale_source):
    build(scale_source)
    (entry,) = cache.iterdir()
    whole, before = entry.read_bytes(), entry.stat()
    build(scale_source)
    assert (entry.stat().st_ino, entry.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    entry.write_bytes(whole[: len(whole) // 2])
    assert build(scale_source).scale.resources().registers
    assert len(entry.read_bytes()) == len(whole)


def test_builds_at_once_all_succeed(cache, scale_source):
    with ThreadPoolExecutor(4) as pool:
        libraries = list(pool.map(lambda _: build(scale_source), range(4)))
    assert {library.scale.resources() for library in libraries} == {libraries[0].scale.resources()}
    assert len(list(cache.iterdir())) == 1


def test_flags_and_sources_and_architectures_are_builds_of_their_own(cache):
    source = "__global__ void f(float* x) { x[0] = VALUE; }"
    for flags in (["-DVALUE=1"], ["-DVALUE=2"], ["-DVALUE=1", "-arch=sm_80"]):
        inline.compile(source, "cuda", flags=flags)
    assert len(list(cache.iterdir())) == 3


def test_an_architecture_is_named_once():
    compiler = toolkit.compiler()
    named = [one for one in translation.options(("-arch=sm_90a",), compiler) if "arch" in one.partition("=")[0]]
    assert named == ["-arch=sm_90a"]
    ours = [one for one in translation.options((), compiler) if one.startswith("--gpu-architecture=sm_")]
    assert len(ours) == 1


def test_wgmma_builds_where_its_architecture_is_named():
    source = '__global__ void f() { asm volatile("wgmma.fence.sync.aligned;"); }'
    with pytest.raises(CompileError, match="wgmma"):
        build(source)
    build(source, ["-arch=sm_90a"])


def test_a_wrong_source_gives_the_lines_that_matter_and_the_whole_log():
    source = "#warning noise\n__global__ void f(float* x) {\n    int unused;\n    x[0] = missing;\n}\n"
    with pytest.raises(CompileError) as caught:
        build(source)
    lines = str(caught.value).splitlines()
    assert lines[0] == 'kernel.cu(4): error: identifier "missing" is undefined'
    assert "x[0] = missing;" in lines[1]
    assert len(lines) == 3
    assert "noise" in caught.value.log


@pytest.mark.parametrize(
    ("source", "flags", "message"),
    [
        ('#include "nope.h"\n', (), 'kernel.cu(1): catastrophic error: cannot open source file "nope.h"'),
        (
            "__global__ void f(float* x) { __shared__ float s[20000]; s[threadIdx.x] = x[0]; __syncthreads();"
            " x[1] = s[threadIdx.x + 1]; }",
            (),
            "ptxas error   : Entry function '_Z1fPf' uses too much shared data",
        ),
        ("__global__ void f() {}", ("--no-such-option",), "nvrtc: error: unrecognized option --no-such-option found"),
        ("__device__ int f() { return 1; }", (), 'the source has no kernel: write one as extern "C" __global__ void'),
        ("__global__ void f(int** x) {}", (), "f: parameter 1 'int * * x' cannot be passed from Python"),
        (
            "__global__ void f(int x) {}\n__global__ void f(float x) {}",
            (),
            "f: defined twice with different parameters",
        ),
    ],
)
def test_every_failure_begins_with_what_to_mend(source, flags, message):
    with pytest.raises(CompileError) as caught:
        build(source, ("-arch=sm_90", *flags))
    assert str(caught.value).startswith(message)


def test_templates_are_built_when_they_get_their_arguments(cache):
    library = build("""
        #include <cuda_fp16.h>
        namespace deep {
        template <typename T, int N>
        __global__ void scale(const T* x, T* out, int64_t n) { if (threadIdx.x < n) out[threadIdx.x] = x[0] * T(N); }
        }
    """)
    assert dir(library) == ["scale"]
    kernel = library.scale["float", 4]
    assert kernel is library.scale["float", 4]
    assert library.scale[torch.float16, 2].signature.parameters[0].element.dtypes == ("float16",)
    with pytest.raises(
        LaunchError, match=r"^scale is a template; pass its template arguments first: library.scale\[T, N"
    ):
        library.scale(1)
    with pytest.raises(CompileError, match=r"^scale: takes 2 template arguments \(T, N\), got 1$"):
        library.scale["float"]


def test_kernels_that_no_other_file_can_see_are_found():
    library = build("static __global__ void f() {}\nnamespace { __global__ void g() {} }")
    assert dir(library) == ["f", "g"]


def test_true_and_one_are_different_template_arguments():
    template = build("template <auto V> __global__ void f(float* x) { x[0] = sizeof(V); }").f
    assert template[1].signature.name == "f<1>"
    assert template[True].signature.name == "f<true>"


def test_a_kernel_that_the_preprocessor_removed_is_not_there():
    library = build('extern "C" __global__ void f() {}\n#if 0\nextern "C" __global__ void g() {}\n#endif')
    assert dir(library) == ["f"]


HEADERS = ["cstdint", "cmath", "math.h", "cfloat", "climits", "cstdio", "algorithm", "cuda_runtime.h", "cuda.h"]
TOOLKIT = [
    "cuda_fp16.h",
    "cuda_bf16.h",
    "mma.h",
    "cuda_pipeline.h",
    "limits",
    "type_traits",
    "cooperative_groups.h",
]


def test_headers_that_hosts_have_are_there_too():
    build(
        "".join(f"#include <{name}>\n" for name in HEADERS)
        + """__global__ void f(float* x, int64_t n) {
            std::int64_t i = n % INT_MAX;
            x[i] = std::sqrt(x[0]) + std::exp(x[1]) + std::max(x[2], FLT_MIN) + INFINITY + (float)M_PI;
        }"""
    )


@pytest.mark.parametrize("header", TOOLKIT)
def test_headers_of_the_toolkit_are_found(header, nvrtc):
    folders = [folder for folder in toolkit.include_folders(nvrtc.major) if (folder / "cuda_runtime.h").is_file()]
    if not any((folder / "cccl").is_dir() for folder in folders):
        pytest.skip("no CUDA headers here")
    build(f"#include <{header}>\n__global__ void f(float* x, int64_t n) {{ x[n] = 1; }}")


def test_a_library_is_copied_and_pickled_with_its_module(scale_source):
    library = build(scale_source)
    for twin in (copy.deepcopy(library), pickle.loads(pickle.dumps(library))):
        assert twin.scale.resources() == library.scale.resources()
    template = build("template <int N> __global__ void f(float* x) { x[0] = N; }").f
    for kernel in (library.scale, template[3]):
        assert copy.deepcopy(kernel).signature == kernel.signature
    assert copy.deepcopy(template)[3].signature == template[3].signature


def test_arguments_are_checked_before_anything_is_launched(scale_source):
    library = build(scale_source)
    x = torch.empty(4)
    refusal = r"^scale: argument 1 \(x\) must be on a CUDA device, got a tensor on cpu$"
    with pytest.raises(LaunchError, match=refusal):
        library.scale(x, x, 4, 1.0, threads=4)
    with pytest.raises(LaunchError, match=r"^scale: takes 4 arguments \(x, out, n, factor\), got 1$"):
        library.scale(x, threads=4)
    with pytest.raises(TypeError, match="threads"):
        library.scale(x, x, 4, 1.0)


def test_a_compiler_that_hangs_dies_at_the_deadline(scale_source, monkeypatch, tmp_path):
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import time\ntime.sleep(300)\n")
    monkeypatch.setattr(process, "__file__", str(sleeper))
    inline.configure(deadline=0.5)
    with pytest.raises(CompileError, match=r"^the compiler was stopped after 0\.5 s$"):
        build(scale_source)


def test_an_nvrtc_that_does_not_work_is_no_fault_of_the_source(scale_source, monkeypatch, tmp_path):
    broken = tmp_path / "libnvrtc.so.13"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(toolkit, "compiler", lambda newest=None: toolkit.Compiler(broken, "13.0"))
    with pytest.raises(ToolchainError, match=r"^NVRTC 13\.0 \(.*\) does not work here: NVRTC does not load: "):
        build(scale_source)
    assert list((tmp_path / "cache").iterdir()) == []
