"""Signatures of SYCL kernels are read from the source."""

import pytest

from kforge.inline import CompileError
from kforge.inline.sycl import declarations

KERNEL = 'extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))\n'


def test_kernels_are_read_with_their_types_and_what_they_write() -> None:
    source = f"""
    #include <sycl/sycl.hpp>
    static inline float twice(float x) {{ return 2 * x; }}
    extern "C" int no_kernel(int n) {{ return n; }}
    {KERNEL} void scale(const float* __restrict__ x, float* __restrict__ out, int n, float factor) {{ out[0] = 1; }}
    extern "C" {{
    SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<2>))
    SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::work_group_size<1, 64>))
    void halves(sycl::half* x, sycl::ext::oneapi::bfloat16 const* y, const sycl::float4* z, std::int64_t n[]) {{ }}
    }}
    {KERNEL} void nothing() {{ }}
    """
    found = declarations.parse(source)
    assert list(found) == ["scale", "halves", "nothing"]
    scale, halves, nothing = found.values()
    assert [(one.name, one.element.spelling, one.pointer) for one in scale.signature.parameters] == [
        ("x", "float", True),
        ("out", "float", True),
        ("n", "int", False),
        ("factor", "float", False),
    ]
    assert scale.written == (False, True, False, False)
    assert [one.element.dtypes for one in halves.signature.parameters] == [
        ("float16",),
        ("bfloat16",),
        ("float32",),
        ("int64",),
    ]
    assert halves.written == (True, False, False, True)
    assert nothing.signature.parameters == ()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (KERNEL.removeprefix('extern "C" ') + "void plain(int n) { }", '^plain: a kernel must be .* with extern "C"$'),
        (f"{KERNEL}void one(int n) {{ }}\n{KERNEL}void one(float* x) {{ }}", "^one: defined twice"),
        (KERNEL + "void typed(torch::Tensor x) { }", "^typed: parameter 1 .* cannot be passed from Python"),
        (KERNEL + "void valued(sycl::half x) { }", "^valued: parameter 1 cannot be passed by value as half$"),
    ],
)
def test_kernels_that_cannot_be_called_are_refused(source: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        declarations.parse(source)


def test_a_declaration_without_a_body_is_no_kernel() -> None:
    assert declarations.parse(f"{KERNEL}void later(int n);") == {}
