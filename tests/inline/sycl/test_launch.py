"""SYCL kernels run on the device at hand and check their arguments."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
import torch

from kforge import inline
from kforge.inline import configuration, launches
from kforge.inline.sycl import packages

if TYPE_CHECKING:
    from collections.abc import Iterator

KERNEL = 'extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))\n'
SOURCE = f"""
{KERNEL}void scale(const float* x, float* out, int n, float factor) {{
    const int i = syclext::this_work_item::get_nd_item<1>().get_global_id(0);
    if (i < n) out[i] = factor * x[i];
}}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<2>))
void places(int64_t* out, int64_t width) {{
    const auto item = syclext::this_work_item::get_nd_item<2>();
    out[item.get_global_id(0) * width + item.get_global_id(1)] = 100 * item.get_group(0) + item.get_local_id(1);
}}

{KERNEL}void sums(const float* x, float* out, int width) {{
    const auto item = syclext::this_work_item::get_nd_item<1>();
    static syclexp::work_group_static<float[64]> partial;
    const int lane = item.get_local_id(0);
    float sum = 0;
    for (int i = lane; i < width; i += 64) sum += x[item.get_group(0) * (size_t)width + i];
    partial[lane] = sum;
    for (int step = 32; step > 0; step /= 2) {{
        sycl::group_barrier(item.get_group());
        if (lane < step) partial[lane] += partial[lane + step];
    }}
    if (lane == 0) out[item.get_group(0)] = partial[0];
}}

{KERNEL}void functions(const float* x, float* out, bool* nan) {{
    const int i = syclext::this_work_item::get_nd_item<1>().get_global_id(0);
    nan[i] = sycl::isnan(x[i]) && x[i] != x[i];
    out[i] = sycl::exp(x[i]) + sycl::fmax(x[i], -INFINITY);
}}

#ifdef NEVER
{KERNEL}void removed(int n) {{ }}
#endif
"""


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        settings = configuration.Configuration(cache=tmp_path_factory.mktemp("builds"))
        patch.setattr(configuration, "_current", settings)
        yield


@pytest.fixture(scope="module")
def library() -> inline.Library:
    try:
        packages.find()
    except inline.ToolchainError as error:
        pytest.skip(str(error))
    return inline.compile(SOURCE, "sycl")


def test_a_kernel_writes_into_the_tensor_that_it_is_given(library: inline.Library) -> None:
    x = torch.randn(1000)
    out = torch.full((1001,), 7.0)
    with launches.recorded() as found:
        library.scale(x, out, x.numel(), 3.0, threads=x.numel())
    torch.testing.assert_close(out[:-1], 3 * x)
    assert out[-1] == 7
    assert [one.name for one in found] == ["scale"]
    assert found[0].end >= found[0].start > 0


def test_the_first_number_of_threads_is_the_last_dimension(library: inline.Library) -> None:
    out = torch.full((6, 8), -1)
    library.places(out, 8, threads=(8, 6), group_size=(4, 3))
    assert out.tolist() == [[100 * (row // 3) + column % 4 for column in range(8)] for row in range(6)]


def test_groups_share_memory_and_wait_for_each_other(library: inline.Library) -> None:
    x = torch.randn(5, 1000)
    out = torch.empty(5)
    library.sums(x, out, 1000, threads=5 * 64, group_size=64)
    torch.testing.assert_close(out, x.sum(1), rtol=1e-5, atol=1e-4)


def test_functions_keep_infinities_and_nan(library: inline.Library) -> None:
    x = torch.tensor([float("nan"), float("inf"), float("-inf"), -1.5])
    out, nan = torch.empty(4), torch.empty(4, dtype=torch.bool)
    library.functions(x, out, nan, threads=4, group_size=4)
    assert nan.tolist() == [True, False, False, False]
    torch.testing.assert_close(out[1:], (x.exp() + x)[1:])


def test_no_thread_is_no_launch(library: inline.Library) -> None:
    out = torch.ones(4)
    library.scale(torch.zeros(4), out, 0, 1.0, threads=0)
    assert out.tolist() == [1, 1, 1, 1]


def test_what_the_preprocessor_removed_is_no_kernel(library: inline.Library) -> None:
    assert dir(library) == ["functions", "places", "scale", "sums"]


def test_a_wrong_argument_is_named(library: inline.Library) -> None:
    x = torch.ones(4)
    with pytest.raises(inline.LaunchError, match=r"^scale: argument 1 \(x\) must be float32, got float64$"):
        library.scale(x.double(), x, 4, 1.0, threads=4)
    with pytest.raises(inline.LaunchError, match="group_size"):
        library.scale(x, x, 4, 1.0, threads=4, group_size=1 << 20)


def test_kernels_and_libraries_can_be_pickled(library: inline.Library) -> None:
    again = pickle.loads(pickle.dumps(library.scale))
    x = torch.ones(4)
    again(x, x, 4, 2.0, threads=4)
    assert x.tolist() == [2, 2, 2, 2]


@pytest.mark.usefixtures("library")
def test_what_does_not_compile_is_refused_with_the_line() -> None:
    with pytest.raises(inline.CompileError, match=r"kernel\.cpp:4:.*no_such_function"):
        inline.compile(SOURCE.replace("syclext::this_work_item::get_nd_item<1>()", "no_such_function()", 1), "sycl")


def test_a_source_without_a_kernel_is_refused() -> None:
    with pytest.raises(inline.CompileError, match="the source has no kernel: write one as extern"):
        inline.compile("static int one() { return 1; }", "sycl")
