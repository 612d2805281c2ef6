"""Measures the peak memory and arithmetic rates of a SYCL device, by events around two kernels. (torch)"""

from __future__ import annotations

import json
from pathlib import Path

from kforge.inline import launches
from kforge.inline.sycl.library import build

_SOURCE = """
#include <sycl/vector.hpp>
using sycl::float4;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
void copied(const float4* x, float4* out) {
    const auto i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
    out[i] = x[i];
}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
void multiplied(const float4* x, float4* out) {
    const auto i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
    const float4 factor = x[i];
    float4 a = factor, b = factor + 1.0f, c = factor + 2.0f, d = factor + 3.0f;
    for (int step = 0; step < STEPS; ++step) {
        a = sycl::fma(a, factor, factor);
        b = sycl::fma(b, factor, factor);
        c = sycl::fma(c, factor, factor);
        d = sycl::fma(d, factor, factor);
    }
    out[i] = a + b + c + d;
}
"""


def main(file: str) -> None:
    """Write the rates to this file as JSON."""
    Path(file).write_text(json.dumps(launches.rates(build(launches.with_steps(_SOURCE), ()))), encoding="utf-8")
