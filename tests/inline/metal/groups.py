"""Kernels about threads: attributes, barriers, threadgroup memory, simdgroups, quads, atomics, simdgroup matrices."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_, xor

import torch
from tests.inline.metal.case import COUNT, Case, cooperative, noise

X = noise(COUNT, seed=4)
N = torch.arange(COUNT, dtype=torch.int32)
INTS = (N * 37 % 101 - 50).int()
LANES = X.view(-1, 32)
QUADS = X.view(-1, 4)
TWO = {"group_size": 32}
INDEX = torch.arange(COUNT)


def spread(values: torch.Tensor, size: int) -> torch.Tensor:
    """One value a group, for every thread of it."""
    return values.repeat_interleave(size)


def attribute(
    name: str, expected: torch.Tensor, threads: object, group: object, kind: str = "uint", value: str = "v"
) -> Case:
    """out[place] = value, where v has the attribute; place is the thread's position in a grid of any shape."""
    source = (
        f"kernel void at_{name}_{kind}(device int* out, {kind} v [[{name}]], uint3 p [[thread_position_in_grid]], "
        f"uint3 all [[threads_per_grid]]) {{ out[p.x + all.x * (p.y + all.y * p.z)] = int({value}); }}"
    )
    expected = expected.int().flatten()
    return Case(
        f"at_{name}_{kind}",
        source,
        torch.zeros_like(expected) - 1,
        expected,
        launch={"threads": threads, "group_size": group},
    )


P = torch.arange(10)
GRID = (5, 3, 2)
PLACES = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(5), indexing="ij"))
ZZ, YY, XX = PLACES
ATTRIBUTES: list[Case] = [
    attribute("thread_position_in_grid", P, 10, 4),
    attribute("thread_position_in_grid", (XX + 10 * YY + 100 * ZZ), GRID, (2, 2, 1), "uint3", "v.x + 10 * v.y + 100 * v.z"),
    attribute("thread_position_in_grid", P, 10, 4, "ushort"),
    attribute("thread_position_in_grid", (XX + 10 * YY)[0], (5, 3), (2, 2), "uint2", "v.x + 10 * v.y"),
    attribute("thread_position_in_threadgroup", P % 4, 10, 4),
    attribute("thread_position_in_threadgroup", XX % 2 + 10 * (YY % 2), GRID, (2, 2, 1), "uint3", "v.x + 10 * v.y + 100 * v.z"),
    attribute("threadgroup_position_in_grid", P // 4, 10, 4),
    attribute("threadgroup_position_in_grid", XX // 2 + 10 * (YY // 2) + 100 * ZZ, GRID, (2, 2, 1), "uint3", "v.x + 10 * v.y + 100 * v.z"),
    attribute("threads_per_threadgroup", torch.tensor([4] * 8 + [2] * 2), 10, 4),
    attribute("threads_per_threadgroup", torch.where(XX < 4, 2, 1) + 10 * torch.where(YY < 2, 2, 1), GRID, (2, 2, 1), "ushort2", "v.x + 10 * v.y"),
    attribute("dispatch_threads_per_threadgroup", torch.full((10,), 4), 10, 4),
    attribute("threads_per_grid", torch.full((10,), 10), 10, 4),
    attribute("threads_per_grid", torch.full((30,), 235), GRID, (2, 2, 1), "uint3", "100 * v.z + 10 * v.y + v.x"),
    attribute("threadgroups_per_grid", torch.full((10,), 3), 10, 4),
    attribute("threadgroups_per_grid", torch.full((30,), 223), GRID, (2, 2, 1), "uint3", "100 * v.z + 10 * v.y + v.x"),
    attribute("thread_index_in_threadgroup", P % 4, 10, 4),
    attribute("thread_index_in_threadgroup", (XX % 2 + (YY % 2) * torch.where(XX < 4, 2, 1)), GRID, (2, 2, 1), "ushort"),
    attribute("thread_index_in_simdgroup", torch.arange(80) % 32, 80, 80),
    attribute("simdgroup_index_in_threadgroup", torch.arange(80) // 32, 80, 80),
    attribute("threads_per_simdgroup", torch.full((40,), 32), 40, 40),
    attribute("simdgroups_per_threadgroup", torch.full((80,), 3), 80, 80),
    attribute("thread_index_in_quadgroup", torch.arange(40) % 4, 40, 40),
    attribute("quadgroup_index_in_threadgroup", torch.arange(40) // 4, 40, 40),
]  # fmt: skip

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
BARRIERS: list[Case] = [
    cooperative("tg_reverse", f"threadgroup float t[32]; t[lid] = x[i]; {BARRIER} out[i] = t[31 - lid];", LANES.flip(1).flatten(), X, launch=TWO),
    cooperative("tg_scalar", f"threadgroup float s; if (lid == 0) s = x[i]; {BARRIER} out[i] = s;", spread(LANES[:, 0], 32), X, launch=TWO),
    cooperative("tg_tree", f"threadgroup float t[64]; t[lid] = x[i]; {BARRIER} for (uint s = size / 2; s > 0; s /= 2) {{ if (lid < s) t[lid] += t[lid + s]; {BARRIER} }} if (lid == 0) out[group] = t[0];", X.sum().view(1), X, rtol=1e-5),
    cooperative("tg_two_arrays", f"threadgroup float a[32], b[32]; a[lid] = x[i]; b[31 - lid] = x[i]; {BARRIER} out[i] = a[lid] + b[lid];", (LANES + LANES.flip(1)).flatten(), X, launch=TWO),
    cooperative("tg_two_dimensions", f"threadgroup float t[8][9]; t[lid / 8][lid % 8] = x[i]; {BARRIER} out[i] = t[lid % 8][lid / 8];", X.view(8, 8).t().flatten(), X),
    cooperative("tg_vector", f"threadgroup float4 t[16]; if (lid < 16) t[lid] = float4(x[i], 0, 0, lid); {BARRIER} out[i] = t[lid % 16].x + t[lid % 16].w;", (X[:16] + torch.arange(16)).repeat(4), X),
    cooperative("tg_struct", f"struct Pair {{ float a; int b; }}; threadgroup Pair t[64]; t[lid].a = x[i]; t[lid].b = int(lid); {BARRIER} out[i] = t[63 - lid].a + t[63 - lid].b;", X.flip(0) + torch.arange(63, -1, -1), X),
    cooperative("tg_pointer", f"threadgroup float t[64]; threadgroup float* p = t + lid; *p = x[i]; {BARRIER} threadgroup const float* q = &t[0]; out[i] = q[(lid + 1) % 64];", X.roll(-1), X),
    cooperative("tg_loop", f"threadgroup float t[64]; float s = 0; for (int k = 0; k < 4; ++k) {{ t[lid] = x[i] * k; {BARRIER} s += t[(lid + 1) % 64]; {BARRIER} }} out[i] = s;", X.roll(-1) * 6, X),
    cooperative("tg_device_exchange", "out[i] = x[i]; threadgroup_barrier(mem_flags::mem_device); float v = out[i ^ 1]; threadgroup_barrier(mem_flags::mem_device); out[i] = v;", X.view(-1, 2).flip(1).flatten(), X, launch=TWO),
    cooperative("tg_both_flags", "threadgroup float t[64]; t[lid] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device); out[i] = t[63 - lid];", X.flip(0), X),
    cooperative("tg_same_value", f"threadgroup int flag; flag = 7; {BARRIER} out[i] = flag + x[i];", X + 7, X),
    cooperative("tg_simdgroup_barrier", "threadgroup float t[64]; t[lid] = x[i]; simdgroup_barrier(mem_flags::mem_threadgroup); out[i] = t[lid ^ 1];", X.view(-1, 2).flip(1).flatten(), X),
    cooperative("tg_scan", f"threadgroup float t[64]; t[lid] = x[i]; {BARRIER} for (uint d = 1; d < size; d *= 2) {{ float v = lid >= d ? t[lid - d] : 0.0f; {BARRIER} t[lid] += v; {BARRIER} }} out[i] = t[lid];", X.cumsum(0), X, rtol=1e-4, atol=1e-5),
    cooperative("tg_half", f"threadgroup half t[64]; t[lid] = half(x[i]); {BARRIER} out[i] = t[63 - lid];", X.half().float().flip(0), X),
    Case("tg_dynamic", f"kernel void tg_dynamic(device float* out, device const float* x, threadgroup float* t [[threadgroup(0)]], uint i [[thread_position_in_grid]], uint lid [[thread_position_in_threadgroup]]) {{ t[lid] = x[i]; {BARRIER} out[i] = t[31 - lid]; }}", torch.zeros(COUNT), LANES.flip(1).flatten(), (X,), launch={**TWO, "threadgroup_memory": 128}),
    Case("tg_dynamic_two", f"kernel void tg_dynamic_two(device float* out, device const float* x, threadgroup float4* a [[threadgroup(1)]], threadgroup half* b [[threadgroup(0)]], uint i [[thread_position_in_grid]], uint lid [[thread_position_in_threadgroup]]) {{ a[lid] = float4(x[i]); b[lid] = 2.0h; {BARRIER} out[i] = a[31 - lid].w * b[31 - lid]; }}", torch.zeros(COUNT), 2 * LANES.flip(1).flatten(), (X,), launch={**TWO, "threadgroup_memory": (64, 512)}),
    cooperative("tg_uniform_exit", f"threadgroup float t[32]; if (group == 1) return; t[lid] = x[i]; {BARRIER} out[i] = t[31 - lid];", torch.cat([LANES[0].flip(0), torch.zeros(32)]), X, launch=TWO),
    cooperative("tg_double_buffer", f"threadgroup float t[2][64]; float s = 0; for (int k = 0; k < 4; ++k) {{ t[k & 1][lid] = x[i] * k; {BARRIER} s += t[k & 1][63 - lid]; }} out[i] = s;", X.flip(0) * 6, X, rtol=1e-5),
    cooperative("tg_helper", f"threadgroup float t[64]; t[lid] = x[i]; {BARRIER} out[i] = helper_pick(t, 63 - lid);", X.flip(0), X),
]  # fmt: skip
HELPERS = "static float helper_pick(threadgroup const float* t, uint k) { return t[k]; }\n"


def simd(name: str, body: str, expected: torch.Tensor, **more: object) -> Case:
    return cooperative(f"simd_{name}", body, expected, X, **more)  # type: ignore[arg-type]


def ints(name: str, body: str, expected: torch.Tensor) -> Case:
    return cooperative(f"simd_{name}", body, expected.int().flatten(), INTS)


def bitwise(row: list[int]) -> int:
    return reduce(and_, [v | 64 for v in row]) + 2 * reduce(or_, [v & 15 for v in row]) + reduce(xor, row)


IL = INTS.view(-1, 32)
SIMD: list[Case] = [
    simd("sum_float", "out[i] = simd_sum(x[i]);", spread(LANES.sum(1), 32), rtol=1e-5, atol=1e-5),
    simd("max_float", "out[i] = simd_max(x[i]) + simd_min(x[i]);", spread(LANES.amax(1) + LANES.amin(1), 32)),
    simd("product_float", "out[i] = simd_product(1.0f + x[i] * 0.1f);", spread((1 + LANES * 0.1).prod(1), 32), rtol=1e-5),
    simd("prefix_inclusive", "out[i] = simd_prefix_inclusive_sum(x[i]);", LANES.cumsum(1).flatten(), rtol=1e-4, atol=1e-5),
    simd("prefix_exclusive", "out[i] = simd_prefix_exclusive_sum(x[i]);", (LANES.cumsum(1) - LANES).flatten(), rtol=1e-4, atol=1e-5),
    simd("prefix_product", "out[i] = simd_prefix_inclusive_product(1.0f + x[i] * 0.1f);", (1 + LANES * 0.1).cumprod(1).flatten(), rtol=1e-5),
    simd("shuffle", "out[i] = simd_shuffle(x[i], 31 - lane);", LANES.flip(1).flatten()),
    simd("shuffle_xor", "out[i] = simd_shuffle_xor(x[i], 5);", LANES[:, torch.arange(32) ^ 5].flatten()),
    simd("shuffle_down", "out[i] = simd_shuffle_down(x[i], 3);", LANES[:, [*range(3, 32), 29, 30, 31]].flatten()),
    simd("shuffle_up", "out[i] = simd_shuffle_up(x[i], 2);", LANES[:, [0, 1, *range(30)]].flatten()),
    simd("rotate_down", "out[i] = simd_shuffle_rotate_down(x[i], 4);", LANES.roll(-4, 1).flatten()),
    simd("rotate_up", "out[i] = simd_shuffle_rotate_up(x[i], 4);", LANES.roll(4, 1).flatten()),
    simd("fill_down", "out[i] = simd_shuffle_and_fill_down(x[i], 0.5f, 4);", torch.cat([LANES[:, 4:], torch.full((2, 4), 0.5)], 1).flatten()),
    simd("broadcast", "out[i] = simd_broadcast(x[i], 7);", spread(LANES[:, 7], 32)),
    simd("broadcast_first", "out[i] = lane > 9 ? simd_broadcast_first(x[i]) : 0.0f;", torch.where(INDEX % 32 > 9, spread(LANES[:, 10], 32), 0.0)),
    simd("tree_by_shuffle", "float v = x[i]; for (ushort d = 16; d > 0; d /= 2) v += simd_shuffle_down(v, d); if (lane == 0) out[simd] = v;", torch.cat([LANES.sum(1), torch.zeros(62)]), rtol=1e-4, atol=1e-5),
    simd("two_levels", f"threadgroup float t[32]; float v = simd_sum(x[i]); if (lane == 0) t[simd] = v; {BARRIER} float w = lane < size / 32 ? t[lane] : 0.0f; out[i] = simd_sum(w);", X.sum().expand(COUNT).contiguous(), rtol=1e-5, atol=1e-5),
    simd("active_only", "out[i] = lane < 8 ? simd_sum(x[i]) : -1.0f;", torch.where(INDEX % 32 < 8, spread(LANES[:, :8].sum(1), 32), -1.0), rtol=1e-5, atol=1e-5),
    simd("both_branches", "float v;\nif (lane < 16)\n v = simd_sum(x[i]);\nelse\n v = simd_sum(2 * x[i]);\nout[i] = v;", spread(torch.stack([LANES[:, :16].sum(1), 2 * LANES[:, 16:].sum(1)], 1).flatten(), 16), rtol=1e-5, atol=1e-5),
    simd("vector", "float2 v = simd_sum(float2(x[i], 1)); out[i] = v.x * 100 + v.y;", spread(LANES.sum(1) * 100 + 32, 32), rtol=1e-4, atol=1e-3),
    simd("half", "out[i] = float(simd_max(half(x[i])));", spread(LANES.half().amax(1).float(), 32)),
    simd("any_all", "out[i] = (simd_any(x[i] > 1.5f) ? 1 : 0) + (simd_all(x[i] < 10) ? 2 : 0);", spread((LANES > 1.5).any(1).float() + 2, 32)),
    simd("is_first", "out[i] = simd_is_first() ? 1 : 0;", (INDEX % 32 == 0).float()),
    simd("different_trips", "float s = 0;\nfor (uint k = 0; k < lane; ++k)\n s += simd_sum(0.0f);\nout[i] = simd_sum(1.0f) + s;", torch.full((COUNT,), 32.0)),
    ints("sum_int", "out[i] = simd_sum(x[i]);", spread(IL.sum(1), 32)),
    ints("and_or_xor", "out[i] = simd_and(x[i] | 64) + simd_or(x[i] & 15) * 2 + simd_xor(x[i]);", spread(torch.tensor([bitwise(row) for row in IL.tolist()]), 32)),
    ints("ballot", "out[i] = popcount(uint(ulong(simd_ballot(x[i] > 0))));", spread((IL > 0).sum(1), 32)),
    ints("ballot_mask", "out[i] = int((ulong(simd_ballot(lane < 3)) << 8) & 0xff00);", torch.full((COUNT,), 0x700)),
    ints("active_mask", "out[i] = int(ulong(simd_active_threads_mask()) & 0xffff);", torch.full((COUNT,), 0xFFFF)),
    ints("int_prefix", "out[i] = simd_prefix_exclusive_sum(x[i]);", IL.cumsum(1) - IL),
    ints("min_max", "out[i] = simd_max(x[i]) * 1000 + simd_min(x[i]);", spread(IL.amax(1) * 1000 + IL.amin(1), 32)),
    ints("quad_sum", "out[i] = quad_sum(x[i]) * 10 + quad_max(x[i]);", spread(INTS.view(-1, 4).sum(1) * 10 + INTS.view(-1, 4).amax(1), 4)),
    simd("quad_shuffle", "out[i] = quad_shuffle(x[i], 3 - lane % 4);", QUADS.flip(1).flatten()),
    simd("quad_xor", "out[i] = quad_shuffle_xor(x[i], 1) + quad_broadcast(x[i], 2);", (QUADS[:, [1, 0, 3, 2]] + QUADS[:, 2:3]).flatten()),
    simd("quad_down_up", "out[i] = quad_shuffle_down(x[i], 1) + 2 * quad_shuffle_up(x[i], 1);", (QUADS[:, [1, 2, 3, 3]] + 2 * QUADS[:, [0, 0, 1, 2]]).flatten()),
    simd("quad_rotate", "out[i] = quad_shuffle_rotate_down(x[i], 1);", QUADS.roll(-1, 1).flatten()),
    simd("quad_prefix", "out[i] = quad_prefix_inclusive_sum(x[i]);", QUADS.cumsum(1).flatten()),
    simd("quad_vote", "out[i] = (quad_any(x[i] > 1) ? 1 : 0) + (quad_all(x[i] > -1) ? 2 : 0);", spread((QUADS > 1).any(1).float() + 2 * (QUADS > -1).all(1).float(), 4)),
    simd("partial_group", "out[i] = simd_sum(1.0f);", torch.cat([torch.full((32,), 32.0), torch.full((32,), 16.0)]), launch={"threads": COUNT, "group_size": 48}),
]  # fmt: skip

MATRIX = noise(8, 8, seed=5)
OTHER = noise(8, 8, seed=6)
BIG_A, BIG_B = noise(16, 24, seed=7), noise(24, 16, seed=8)


def matrices(
    name: str,
    body: str,
    expected: torch.Tensor,
    a: torch.Tensor = MATRIX,
    b: torch.Tensor = OTHER,
    kind: str = "float",
    **more: object,
) -> Case:
    source = f"kernel void {name}(device {kind}* out, device const {kind}* a, device const {kind}* b, uint lid [[thread_position_in_threadgroup]]) {{ {body} }}"
    launch = {"threads": 32, "group_size": 32}
    return Case(
        name, source, torch.zeros_like(expected), expected, (a, b), launch, **{"rtol": 1e-5, "atol": 1e-5, **more}
    )  # type: ignore[arg-type]


LOAD = "simdgroup_float8x8 A, B, C; simdgroup_load(A, a, 8); simdgroup_load(B, b, 8); "
MATRICES: list[Case] = [
    matrices("sm_copy", LOAD + "simdgroup_store(A, out, 8);", MATRIX),
    matrices("sm_multiply", LOAD + "simdgroup_multiply(C, A, B); simdgroup_store(C, out, 8);", MATRIX @ OTHER),
    matrices("sm_accumulate", LOAD + "C = simdgroup_float8x8(2); simdgroup_multiply_accumulate(C, A, B, C); simdgroup_store(C, out, 8);", MATRIX @ OTHER + 2 * torch.eye(8)),
    matrices("sm_filled", LOAD + "C = make_filled_simdgroup_matrix<float, 8, 8>(3.0f); simdgroup_multiply_accumulate(C, A, B, C); simdgroup_store(C, out, 8);", MATRIX @ OTHER + 3),
    matrices("sm_transposed", "simdgroup_float8x8 A; simdgroup_load(A, a, 8, ulong2(0, 0), true); simdgroup_store(A, out, 8);", MATRIX.t().contiguous()),
    matrices("sm_offset", "simdgroup_float8x8 A; simdgroup_load(A, a, 24, ulong2(8, 8)); simdgroup_store(A, out, 8);", BIG_A[8:, 8:16].contiguous(), BIG_A),
    matrices("sm_elements", LOAD + "A.thread_elements()[0] *= 2; A.thread_elements()[1] *= 2; simdgroup_store(A, out);", 2 * MATRIX),
    matrices("sm_half", "simdgroup_half8x8 A, B; simdgroup_float8x8 C(0); simdgroup_load(A, a, 8); simdgroup_load(B, b, 8); simdgroup_multiply_accumulate(C, A, B, C); threadgroup float t[64]; simdgroup_store(C, t, 8); simdgroup_barrier(mem_flags::mem_threadgroup); out[lid] = half(t[lid]); out[lid + 32] = half(t[lid + 32]);", (MATRIX.half().float() @ OTHER.half().float()).half(), MATRIX.half(), OTHER.half(), "half", rtol=1e-3),
    matrices("sm_tiled", "for (uint r = 0; r < 2; ++r) for (uint c = 0; c < 2; ++c) { simdgroup_matrix<float, 8, 8> A, B, C = simdgroup_matrix<float, 8, 8>(0); for (uint k = 0; k < 3; ++k) { simdgroup_load(A, a + r * 8 * 24 + k * 8, 24); simdgroup_load(B, b + k * 8 * 16 + c * 8, 16); simdgroup_multiply_accumulate(C, A, B, C); } simdgroup_store(C, out + r * 8 * 16 + c * 8, 16); }", BIG_A @ BIG_B, BIG_A, BIG_B),
]  # fmt: skip


def atomic(
    name: str, kind: str, body: str, expected: object, start: object = 0, dtype: torch.dtype = torch.int32
) -> Case:
    source = f"kernel void atomic_{name}(device atomic_{kind}* out, device const int* x, {ATTRS}) {{ {body} }}"
    out = torch.tensor([start] if not isinstance(start, list) else start, dtype=dtype)
    result = torch.tensor([expected] if not isinstance(expected, list) else expected, dtype=dtype)
    return Case(f"atomic_{name}", source, out, result, (INTS,), launch=TWO, rtol=1e-5)


ATTRS = "uint i [[thread_position_in_grid]], uint lid [[thread_position_in_threadgroup]]"
R = "memory_order_relaxed"
ATOMICS: list[Case] = [
    atomic("add_int", "int", f"atomic_fetch_add_explicit(out, x[i], {R});", int(INTS.sum())),
    atomic("sub_int", "int", f"atomic_fetch_sub_explicit(&out[0], x[i], {R});", -int(INTS.sum())),
    atomic("max_int", "int", f"atomic_fetch_max_explicit(out, x[i], {R});", int(INTS.max()), -1000),
    atomic("min_int", "int", f"atomic_fetch_min_explicit(out, x[i], {R});", int(INTS.min()), 1000),
    atomic("or_uint", "uint", f"atomic_fetch_or_explicit(out, 1u << (i % 8), {R});", 255),
    atomic("and_uint", "uint", f"atomic_fetch_and_explicit(out, ~(1u << (i % 4)), {R});", 0xF0, 0xFF),
    atomic("xor_uint", "uint", f"if (i < 5) atomic_fetch_xor_explicit(out, 1u << i, {R});", 31),
    atomic("add_float", "float", f"atomic_fetch_add_explicit(out, float(x[i]) * 0.5f, {R});", float(INTS.sum()) / 2, 0.0, torch.float32),
    atomic("store", "int", f"atomic_store_explicit(&out[i % 4], 7, {R});", [7, 7, 7, 7], [0, 0, 0, 0]),
    atomic("exchange", "int", f"if (i == 0) {{ int old = atomic_exchange_explicit(out, 5, {R}); atomic_store_explicit(&out[1], old, {R}); }}", [5, 9], [9, 0]),
    atomic("load", "int", f"if (i == 3) atomic_store_explicit(&out[1], atomic_load_explicit(&out[0], {R}) + 1, {R});", [4, 5], [4, 0]),
    atomic("compare_exchange", "int", f"int old = atomic_load_explicit(out, {R}); while (!atomic_compare_exchange_weak_explicit(out, &old, old + x[i], {R}, {R})) {{}}", int(INTS.sum())),
    atomic("old_value", "int", f"int old = atomic_fetch_add_explicit(out, 1, {R}); atomic_fetch_max_explicit(&out[1], old, {R});", [64, 63], [0, 0]),
    atomic("histogram", "int", f"atomic_fetch_add_explicit(&out[uint(x[i] + 50) % 8], 1, {R});", torch.bincount((INTS + 50).long() % 8, minlength=8).tolist(), [0] * 8),
    atomic("threadgroup", "int", f"threadgroup atomic_int t; if (lid == 0) atomic_store_explicit(&t, 0, {R}); {BARRIER} atomic_fetch_add_explicit(&t, x[i], {R}); {BARRIER} if (lid == 0) atomic_fetch_add_explicit(out, atomic_load_explicit(&t, {R}), {R});", int(INTS.sum())),
    atomic("threadgroup_array", "int", f"threadgroup atomic_uint t[4]; if (lid < 4) atomic_store_explicit(&t[lid], 0u, {R}); {BARRIER} atomic_fetch_add_explicit(&t[lid % 4], 1u, {R}); {BARRIER} if (lid < 4) atomic_fetch_add_explicit(&out[lid], int(atomic_load_explicit(&t[lid], {R})), {R});", [16] * 4, [0] * 4),
    atomic("volatile_pointer", "int", f"volatile device atomic_int* p = out; atomic_fetch_add_explicit(p, 2, {R});", 128),
    atomic("bool_flag", "int", f"threadgroup atomic_bool seen; if (lid == 0) atomic_store_explicit(&seen, false, {R}); {BARRIER} if (!atomic_exchange_explicit(&seen, true, {R})) atomic_fetch_add_explicit(out, 1, {R});", 2),
    atomic("fence", "int", "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device); atomic_fetch_add_explicit(out, 1, memory_order_relaxed);", 64),
    atomic("cast", "int", f"device int* raw = (device int*)out; atomic_fetch_add_explicit((device atomic_int*)&raw[1], 1, {R});", [0, 64], [0, 0]),
]  # fmt: skip
