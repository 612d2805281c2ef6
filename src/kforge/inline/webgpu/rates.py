"""Measures the peak memory and arithmetic rates of a WebGPU device, by timestamps around two kernels. (torch)"""

from __future__ import annotations

import json
from pathlib import Path

from kforge.inline import launches
from kforge.inline.webgpu.library import build

_SOURCE = """
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(64)
fn copied(@builtin(global_invocation_id) thread: vec3<u32>) { out[thread.x] = x[thread.x]; }

@compute @workgroup_size(64)
fn multiplied(@builtin(global_invocation_id) thread: vec3<u32>) {
    let factor = x[thread.x];
    var a = factor; var b = factor + 1.0; var c = factor + 2.0; var d = factor + 3.0;
    for (var i = 0u; i < STEPSu; i++) {
        a = fma(a, factor, factor); b = fma(b, factor, factor); c = fma(c, factor, factor); d = fma(d, factor, factor);
    }
    out[thread.x] = a + b + c + d;
}
"""


def main(file: str) -> None:
    """Write the rates to this file as JSON."""
    Path(file).write_text(json.dumps(launches.rates(build(launches.with_steps(_SOURCE), ()))), encoding="utf-8")
