"""Measures what a WebGPU device reaches in memory traffic and arithmetic, by timestamps around kernels. (torch)"""

from __future__ import annotations

import json
from pathlib import Path

import torch

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
    for (var i = 0u; i < 256u; i++) {
        a = fma(a, factor, factor); b = fma(b, factor, factor); c = fma(c, factor, factor); d = fma(d, factor, factor);
    }
    out[thread.x] = a + b + c + d;
}
"""
_BYTES = 32 << 20
"""Bytes of a copied tensor: beyond the caches, and well under the least that a device binds (128 MB)."""
_THREADS = 1 << 14
_OPERATIONS = 256 * 4 * 4 * 2
"""Floating-point operations of a thread of `multiplied`: four vectors of four, a product and a sum each."""
_ROUNDS = 3


def measured() -> dict[str, float]:
    """Return `bytes_per_second` and `flops_per_second`; neither where the device has no timestamps."""
    library = build(_SOURCE, ())
    x = torch.ones(_BYTES // 4)
    out = torch.empty_like(x)
    with launches.recorded() as found:
        for _ in range(_ROUNDS):
            library.copied(x, out, threads=x.numel() // 4)
            library.multiplied(x[: 4 * _THREADS], out[: 4 * _THREADS], threads=_THREADS)
    best = {
        name: min((one.end - one.start for one in found if one.name == name and one.end > one.start), default=0)
        for name in ("copied", "multiplied")
    }
    if not all(best.values()):
        return {}
    return {
        "bytes_per_second": 2 * _BYTES / (best["copied"] * 1e-9),
        "flops_per_second": _THREADS * _OPERATIONS / (best["multiplied"] * 1e-9),
    }


def main(file: str) -> None:
    """Write the rates to this file as JSON."""
    Path(file).write_text(json.dumps(measured()), encoding="utf-8")
