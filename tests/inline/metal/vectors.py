"""Kernels about vector types: constructors, swizzles, operators, functions, packed types, matrices."""

from __future__ import annotations

import torch
from tests.inline.metal.case import COUNT, Case, elementwise, noise

V = noise(COUNT, 4, seed=2)
W = noise(COUNT, 4, seed=3)


def vector(name: str, body: str, expected: torch.Tensor, *inputs: torch.Tensor, width: int = 4, **more: object) -> Case:
    """`body` computes out[i] from the vectors x[i] and y[i]."""
    given = inputs or (V, W)
    parameters = "".join(f"device const float4* {letter}, " for letter, _ in zip("xy", given, strict=False))
    kind = f"float{width if width > 1 else ''}"
    source = f"kernel void {name}(device {kind}* out, {parameters}uint i [[thread_position_in_grid]]) {{ {body} }}"
    return Case(name, source, torch.zeros_like(expected), expected, given, **more)  # type: ignore[arg-type]


def columns(*which: int) -> torch.Tensor:
    return V[:, list(which)].contiguous()


ONE = torch.ones(COUNT)
VECTORS: list[Case] = [
    vector("vec_add", "out[i] = x[i] + y[i];", V + W),
    vector("vec_scalar", "out[i] = 2.0f * x[i] - y[i] / 4.0f + 1;", 2 * V - W / 4 + 1),
    vector("vec_splat", "out[i] = float4(x[i].x);", V[:, :1].expand(-1, 4).contiguous()),
    vector("vec_constructor", "out[i] = float4(x[i].x, 1, 2.0, x[i].w);", torch.stack([V[:, 0], ONE, 2 * ONE, V[:, 3]], 1)),
    vector("vec_mixed", "out[i] = float4(x[i].xy, y[i].zw);", torch.cat([V[:, :2], W[:, 2:]], 1)),
    vector("vec_mixed_three", "out[i] = float4(x[i].xyz, 1.0f);", torch.cat([V[:, :3], ONE[:, None]], 1)),
    vector("vec_mixed_middle", "out[i] = float4(1.0f, x[i].yz, 0);", torch.stack([ONE, V[:, 1], V[:, 2], 0 * ONE], 1)),
    vector("vec_template", "out[i] = vec<float, 4>(x[i].wzyx);", columns(3, 2, 1, 0)),
    vector("vec_template_args", "vec<float, 2> a = vec<float, 2>(x[i].x, 3); out[i] = vec<float, 4>(a, a);", torch.stack([V[:, 0], 3 * ONE] * 2, 1)),
    vector("vec_swizzle_repeat", "out[i] = x[i].xxyy;", columns(0, 0, 1, 1)),
    vector("vec_swizzle_colour", "out[i] = x[i].bgra;", columns(2, 1, 0, 3)),
    vector("vec_swizzle_chain", "out[i] = x[i].wzyx.xyxy;", columns(3, 2, 3, 2)),
    vector("vec_swizzle_write", "float4 v = x[i]; v.xy = y[i].zw; out[i] = v;", torch.cat([W[:, 2:], V[:, 2:]], 1)),
    vector("vec_swizzle_write_order", "float4 v = x[i]; v.wx = v.xw; out[i] = v;", columns(3, 1, 2, 0)),
    vector("vec_swizzle_compound", "float4 v = x[i]; v.yzw *= 2.0f; v.xw += y[i].xw; out[i] = v;", torch.stack([V[:, 0] + W[:, 0], V[:, 1] * 2, V[:, 2] * 2, V[:, 3] * 2 + W[:, 3]], 1)),
    vector("vec_swizzle_device", "out[i] = x[i]; out[i].x = 5; out[i].zw = y[i].xy;", torch.stack([5 * ONE, V[:, 1], W[:, 0], W[:, 1]], 1)),
    vector("vec_components", "float4 v; v.x = x[i].w; v.y = x[i].z; v.z = x[i].y; v.w = x[i].x; out[i] = v;", columns(3, 2, 1, 0)),
    vector("vec_index", "float4 v = 0; for (int k = 0; k < 4; ++k) v[k] = x[i][3 - k]; out[i] = v;", columns(3, 2, 1, 0)),
    vector("vec_braces", "float4 v = {x[i].x, 1, 2, 3}; out[i] = v;", torch.stack([V[:, 0], ONE, 2 * ONE, 3 * ONE], 1)),
    vector("vec_negate", "out[i] = -x[i];", -V),
    vector("vec_assign_ops", "float4 v = x[i]; v += y[i]; v *= 2; v -= 1.0f; out[i] = v;", (V + W) * 2 - 1),
    vector("vec_compare", "out[i] = select(x[i], y[i], x[i] < y[i]);", torch.maximum(V, W)),
    vector("vec_any_all", "out[i] = (any(x[i] > 0.0f) ? 1.0f : 0.0f) + (all(x[i] > 0.0f) ? 2.0f : 0.0f);", (V > 0).any(1).float() + 2 * (V > 0).all(1).float(), width=1),
    vector("vec_not", "bool4 b = !(x[i] > 0.0f); out[i] = float4(b);", (V <= 0).float()),
    vector("vec_dot", "out[i] = dot(x[i], y[i]);", (V * W).sum(1), width=1),
    vector("vec_length", "out[i] = length(x[i]) + distance(x[i], y[i]);", V.norm(dim=1) + (V - W).norm(dim=1), width=1),
    vector("vec_normalize", "out[i] = normalize(x[i]);", torch.nn.functional.normalize(V)),
    vector("vec_cross", "out[i] = float4(cross(x[i].xyz, y[i].xyz), 0);", torch.cat([torch.linalg.cross(V[:, :3], W[:, :3]), 0 * ONE[:, None]], 1)),
    vector("vec_clamp", "out[i] = clamp(x[i], -0.5f, 0.5f) + max(x[i], 0.0f);", V.clamp(-0.5, 0.5) + V.relu()),
    vector("vec_mix", "out[i] = mix(x[i], y[i], 0.75f);", V + (W - V) * 0.75),
    vector("vec_math", "out[i] = exp(x[i]) + sqrt(abs(y[i]));", V.exp() + W.abs().sqrt()),
    vector("vec_fma", "out[i] = fma(x[i], y[i], float4(1));", V * W + 1),
    vector("vec_int", "int4 a = int4(x[i] * 10); out[i] = float4((a >> 1) & 3) + float4(a % 3);", ((V * 10).int() >> 1 & 3).float() + torch.fmod((V * 10).int(), 3).float()),
    vector("vec_uint_convert", "uint4 u = uint4(abs(x[i]) * 100); out[i] = float4(u);", (V.abs() * 100).int().float()),
    vector("vec_half_convert", "half4 h = half4(x[i]); out[i] = float4(h);", V.half().float()),
    vector("vec_bits", "uint4 u = as_type<uint4>(x[i]); out[i] = as_type<float4>(u ^ 0x80000000u);", -V),
    vector("vec_float2", "float2 a = x[i].xy * y[i].yx; out[i] = a.x + a.y;", V[:, 0] * W[:, 1] + V[:, 1] * W[:, 0], width=1),
    vector("vec_float3_array", "float3 a[2] = {x[i].xyz, y[i].xyz}; out[i] = dot(a[0], a[1]) + float(sizeof(a));", (V[:, :3] * W[:, :3]).sum(1) + 32, width=1),
    vector("vec_pointer_cast", "device const float* p = (device const float*)x; out[i] = p[4 * i + 2];", V[:, 2].contiguous(), width=1),
    vector("vec_reinterpret", "auto p = reinterpret_cast<device const float2*>(x); out[i] = p[2 * i + 1].y;", V[:, 3].contiguous(), width=1),
    vector("vec_matrix", "float2x2 m = float2x2(x[i].xy, x[i].zw); float2 r = m * y[i].xy; out[i] = r.x + 10 * r.y + determinant(m);", V[:, 0] * W[:, 0] + V[:, 2] * W[:, 1] + 10 * (V[:, 1] * W[:, 0] + V[:, 3] * W[:, 1]) + V[:, 0] * V[:, 3] - V[:, 1] * V[:, 2], width=1, rtol=1e-5, atol=1e-5),
    vector("vec_increment", "int2 a = int2(1, 2); ++a; a--; a += 3; out[i] = x[i].x + a.x + a.y;", V[:, 0] + 9, width=1),
    Case("vec_packed", "kernel void vec_packed(device packed_float3* out, device const packed_float3* x, uint i [[thread_position_in_grid]]) { float3 v = x[i]; out[i] = packed_float3(v * 2 + x[i].zyx); }", torch.zeros(COUNT, 3), V[:, :3] * 2 + V[:, [2, 1, 0]], (V[:, :3].contiguous(),)),
    Case("vec_uchar4", "kernel void vec_uchar4(device uchar4* out, device const uchar4* x, uint i [[thread_position_in_grid]]) { out[i] = x[i].wzyx + uchar4(1); }", torch.zeros(COUNT, 4, dtype=torch.uint8), torch.arange(256, dtype=torch.uint8).view(COUNT, 4).flip(1) + 1, (torch.arange(256, dtype=torch.uint8).view(COUNT, 4),)),
    Case("vec_half4_load", "kernel void vec_half4_load(device half4* out, device const half4* x, uint i [[thread_position_in_grid]]) { half4 v = x[i]; v.xy = v.yx; out[i] = v * 2.0h; }", torch.zeros(COUNT, 4, dtype=torch.float16), V.half()[:, [1, 0, 2, 3]] * 2, (V.half(),)),
    Case("vec_short_bool", "kernel void vec_short_bool(device int* out, uint i [[thread_position_in_grid]]) { short2 a = short2(i, 3); bool2 b = a > short2(5, 2); out[i] = int(b.x) + 2 * int(b.y) + sizeof(short4); }", torch.zeros(COUNT, dtype=torch.int32), (torch.arange(COUNT) > 5).int() + 2 + 8),
    elementwise("vec_pack_unorm", "out[i] = unpack_unorm4x8_to_float(pack_float_to_unorm4x8(float4(x[i]))).z;", lambda x: (x.clamp(0, 1) * 255).round() / 255, V[:, 0].contiguous()),
]  # fmt: skip
