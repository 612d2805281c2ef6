"""Measures the peak memory and arithmetic rates of an OpenCL device, by events around two kernels. (torch)"""

from __future__ import annotations

import json
from pathlib import Path

from kforge.inline import launches
from kforge.inline.opencl.library import build

_SOURCE = """
__kernel void copied(__global const float4* x, __global float4* out) { out[get_global_id(0)] = x[get_global_id(0)]; }

__kernel void multiplied(__global const float4* x, __global float4* out) {
    const float4 factor = x[get_global_id(0)];
    float4 a = factor, b = factor + 1.0f, c = factor + 2.0f, d = factor + 3.0f;
    for (int i = 0; i < STEPS; ++i) {
        a = mad(a, factor, factor); b = mad(b, factor, factor); c = mad(c, factor, factor); d = mad(d, factor, factor);
    }
    out[get_global_id(0)] = a + b + c + d;
}
"""


def main(file: str) -> None:
    """Write the rates to this file as JSON."""
    Path(file).write_text(json.dumps(launches.rates(build(launches.with_steps(_SOURCE), ()))), encoding="utf-8")
