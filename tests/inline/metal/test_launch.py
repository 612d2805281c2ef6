"""Arguments, launch shapes and the form of torch.mps.compile_shader."""

from __future__ import annotations

import pickle
import shutil

import pytest
import torch

from kforge import inline
from kforge.inline import LaunchError, ToolchainError, UnknownKernel, metal
from kforge.inline.metal import compiler

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void scale(device float* out, device const float* x, constant float& factor, constant uint& n,
                  uint i [[thread_position_in_grid]]) {
  if (i < n) out[i] = factor * x[i];
}
kernel void strided(device float* out, device const float* x, constant uint& stride,
                    uint i [[thread_position_in_grid]]) {
  out[i] = x[i * stride];
}
kernel void integers(device int* out, device const long* x, uint i [[thread_position_in_grid]]) { out[i] = int(x[i]); }
kernel void bits(device uint* out, device const uint* x, uint i [[thread_position_in_grid]]) { out[i] = x[i]; }
kernel void halves(device half* out, constant half& v, uint i [[thread_position_in_grid]]) { out[i] = v; }
kernel void shapes(device int* out, constant int2& v, uint i [[thread_position_in_grid]]) { out[i] = v.x * 10 + v.y; }
kernel void dynamic(device float* out, threadgroup float* t [[threadgroup(0)]],
                    uint i [[thread_position_in_threadgroup]]) {
  t[i] = i; out[i] = t[i];
}
kernel void sizes(device uint* out, uint3 g [[threads_per_threadgroup]], uint i [[thread_position_in_grid]]) {
  out[i] = g.x;
}
constant float bias [[function_constant(4)]];
kernel void biased(device float* out, uint i [[thread_position_in_grid]]) { out[i] = bias; }
[[max_total_threads_per_threadgroup(64)]]
kernel void small(device float* out, uint i [[thread_position_in_grid]]) { out[i] = i; }
"""
X = torch.arange(10.0)


@pytest.fixture(scope="module")
def library(build):
    return build(SOURCE)


def test_launch_writes_the_output_and_returns_nothing(library):
    out = torch.full((12,), -1.0)
    assert library.scale(out, X, 2.0, 10, threads=12, group_size=5) is None
    assert out.tolist() == [*(2 * X).tolist(), -1, -1]


def test_threads_default_to_the_first_tensors_elements(library):
    out = torch.zeros(10)
    library.scale(out, X, 3.0, 10)
    assert out.equal(3 * X)


def test_group_size_defaults_to_what_fits(library):
    out = torch.zeros(2000, dtype=torch.int32)
    library.sizes(out)
    assert out.unique().tolist() == [976, 1024]


def test_in_place(library):
    x = X.clone()
    library.scale(x, x, 2.0, 10)
    assert x.equal(2 * X)


def test_overlapping_views_see_each_other(library):
    x = torch.zeros(12)
    x[:10] = X
    with pytest.raises(LaunchError, match="race"):  # each thread writes what another one reads
        library.scale(x[1:11], x[:10], 2.0, 10)


def test_a_view_that_is_not_contiguous_may_be_read_by_strides(library):
    table = torch.arange(40.0).view(10, 4)
    out = torch.zeros(10)
    library.strided(out, table[:, 1], 4)
    assert out.equal(table[:, 1])
    with pytest.raises(LaunchError, match="out of bounds: read at index 40 of buffer x, which has 37 elements"):
        library.strided(torch.zeros(11), table[:, 1], 4)


def test_empty_tensors(library):
    library.scale(torch.zeros(0), torch.zeros(0), 1.0, 0, threads=0)
    with pytest.raises(LaunchError, match="out of bounds: write at index 0 of buffer out, which has 0 elements"):
        library.small(torch.zeros(0), threads=1)


@pytest.mark.parametrize(
    ("kernel", "arguments", "launch", "message"),
    [
        ("scale", (X, X, 1.0), {}, r"scale: takes 4 arguments \(out, x, factor, n\), got 3"),
        ("scale", (1.0, X, 1.0, 3), {"threads": 1}, r"argument 1 \(out\) must be a tensor, got float"),
        ("scale", (X, X, 2, 3), {}, r"argument 3 \(factor\) is float&: .* pass a float"),
        ("scale", (X, X, 2.0, 3.0), {}, r"argument 4 \(n\) is uint&: .* pass an int"),
        ("scale", (X, X, 2.0, -1), {}, "must fit uint"),
        ("scale", (X.half(), X, 2.0, 3), {}, r"argument 1 \(out\) is float\*: must be float32, got float16"),
        ("scale", (X.double(), X, 2.0, 3), {}, "Metal has no float64"),
        ("scale", (X.to_sparse(), X, 2.0, 3), {"threads": 1}, "dense"),
        ("scale", (X, X, "2", 3), {}, "must be a tensor, a number"),
        ("scale", (X.to("meta"), X, 2.0, 3), {}, "host memory"),
        ("scale", (X, X, 2.0, 3), {"threads": (4, 4), "group_size": 4}, "the same length"),
        ("scale", (X, X, 2.0, 3), {"threads": 2000, "group_size": 2000}, "at most 1024 threads"),
        ("scale", (X, X, 2.0, 3), {"threads": "many"}, "threads must be one to three"),
        ("small", (X,), {"threads": 10, "group_size": 65}, "at most 64 threads"),
        ("integers", (X.int(), X.int()), {}, r"is long\*: must be int64, got int32"),
        ("bits", (X.long(), X), {}, "elements of 32 bits"),
        ("halves", (X.half(), 1.5), {}, 'arg_casts="fp16"'),
        ("halves", (X.half(), 1.5), {"arg_casts": "fp8"}, "arg_casts must be one of"),
        ("shapes", (X.int(), (1, 2)), {}, '64-bit integers; give the type by arg_casts, for example arg_casts="int32"'),
        ("shapes", (X.int(), (1, 2, 3)), {"arg_casts": "int32"}, "needs 2 numbers, got 3"),
        ("shapes", (X.int(), 1), {}, "needs a list"),
        ("dynamic", (X,), {}, "threadgroup_memory must list the bytes of each"),
        ("dynamic", (X,), {"threadgroup_memory": 40000}, "1 to 32768 bytes"),
        ("biased", (X,), {}, r"function constant bias \(index 4\) has no value"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(library, kernel, arguments, launch, message):
    with pytest.raises(LaunchError, match=message):
        getattr(library, kernel)(*arguments, **launch)


def test_bits_of_any_type_are_read_as_unsigned(library):
    out = torch.zeros(10)
    library.bits(out, X)
    assert out.equal(X)


def test_casts(library):
    out = torch.zeros(10, dtype=torch.float16)
    library.halves(out, 1.5, arg_casts="fp16")
    assert out.eq(1.5).all()
    out = torch.zeros(10, dtype=torch.int32)
    library.shapes(out, [4, 2], arg_casts={1: "int32"})
    assert out.eq(42).all()


def test_dynamic_memory_is_as_large_as_asked(library):
    out = torch.zeros(10)
    library.dynamic(out, threadgroup_memory=40)
    assert out.equal(X)
    with pytest.raises(
        LaunchError, match="out of bounds: write at index 9 of threadgroup memory t, which has 9 elements"
    ):
        library.dynamic(out, threadgroup_memory=36)


def test_function_constants_by_name_and_number(library):
    out = torch.zeros(10)
    library.biased.specialize({"bias": 2.5})(out)
    assert out.eq(2.5).all()
    pickle.loads(pickle.dumps(library.biased.specialize({4: 1.5})))(out)
    assert out.eq(1.5).all()
    with pytest.raises(LaunchError, match="no function constant 'other'"):
        library.biased.specialize({"other": 1})
    with pytest.raises(LaunchError, match="must be float"):
        library.biased.specialize({4: "x"})(out)


def test_unknown_kernel(library):
    with pytest.raises(UnknownKernel, match="no kernel named 'nothing'"):
        library.nothing(X)
    assert "scale" in dir(library)


def test_second_compilation_comes_from_the_cache(monkeypatch):
    first = "#include <metal_stdlib>\nkernel void f(device float* out) { out[0] = 1; }"
    inline.compile(first, "metal")
    monkeypatch.setattr(compiler.steps, "run", lambda *_: pytest.fail("it was built again"))
    out = torch.zeros(1)
    inline.compile(first, "metal").f(out)
    assert out.item() == 1


def test_without_clang_the_package_is_named(monkeypatch):
    compiler.find_compiler.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ToolchainError, match="install the package clang"):
        inline.compile("kernel void f(device float* out) { out[0] = 1; }", "metal")
    monkeypatch.undo()
    compiler.find_compiler.cache_clear()


def test_programs_for_torch_mps_run_unchanged(monkeypatch):
    monkeypatch.setattr(torch.mps, "compile_shader", torch.mps.compile_shader)
    monkeypatch.setattr(torch.mps, "synchronize", torch.mps.synchronize)
    assert metal.install()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lib = torch.mps.compile_shader(
                """
                #include <metal_stdlib>
                using namespace metal;
                kernel void relu(device float* out [[buffer(0)]], constant float* x [[buffer(1)]],
                                 uint i [[thread_position_in_grid]]) {
                    out[i] = max(x[i], 0.0f);
                }
                """
            )

        def forward(self, x):
            out = torch.empty_like(x)
            self.lib.relu(out, x, threads=(x.numel(),), group_size=(64,))
            return out

    x = torch.randn(1000)
    model = Model()
    assert model(x).equal(x.relu())
    torch.mps.synchronize()
    assert pickle.loads(pickle.dumps(model.lib)) is not None
    assert dir(model.lib) == ["relu"]
    assert model.lib.relu.thread_execution_width == 32


def test_torchs_own_headers_can_be_used():
    library = metal.compile_shader(
        """
        #include <c10/metal/special_math.h>
        #include <c10/metal/reduction_utils.h>
        #include <metal_stdlib>
        using namespace metal;
        kernel void special(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
            out[i] = c10::metal::erf(x[i]) + c10::metal::log_gamma(abs(x[i]) + 1) + c10::metal::sinc(x[i]);
        }
        kernel void total(device float* out, device const float* x, uint i [[thread_position_in_threadgroup]],
                          uint size [[threads_per_threadgroup]]) {
            threadgroup float shared[32];
            out[i] = c10::metal::threadgroup_sum(shared, x[i], i, size);
        }
        """
    )
    x = torch.linspace(-3, 3, 100)
    out = torch.zeros(100)
    library.special(out, x)
    torch.testing.assert_close(out, x.erf() + torch.lgamma(x.abs() + 1) + torch.sinc(x), rtol=1e-4, atol=1e-5)
    library.total(out, x + 1, threads=100, group_size=100)
    torch.testing.assert_close(out, torch.full((100,), 100.0), rtol=1e-4, atol=1e-4)
