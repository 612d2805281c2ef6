"""Whole sources: templates, function constants, structures, namespaces, macros, and kernels as people write them."""

from __future__ import annotations

import struct

import torch
from tests.inline.metal.case import COUNT, HEAD, Case, noise

X = noise(COUNT, seed=9)
ROWS = noise(6, 100, seed=10)
A, B = noise(20, 37, seed=11), noise(37, 24, seed=12)
IMAGE, WEIGHT = noise(2, 3, 9, 8, seed=13), noise(4, 3, 3, 3, seed=14)
Q, K, V = noise(10, 16, seed=15), noise(12, 16, seed=16), noise(12, 16, seed=17)

LANGUAGE_SOURCE = (
    HEAD
    + r"""
#include <metal_math>
#define SQUARE(v) ((v) * (v))
#define SWAP(v) (v).yx
constant float table[4] = {1.0, 2.0, 4.0, 8.0};
constant constexpr int STEPS = 3;
constexpr constant float SCALE = 0.5f;
constant bool twice [[function_constant(0)]];
constant int shift [[function_constant(1)]];
constant float maybe [[function_constant(2)]];
constant bfloat factor [[function_constant(3)]];
constant float maybe_value = is_function_constant_defined(maybe) ? maybe : 10.0f;

struct Params { uint n; float scale; float4 bias; packed_float3 tail; };
struct Shape { int rows, cols; int strides[2]; };
struct Accumulator {
  float sum;
  int count;
  void add(float v) { sum += v; ++count; }
  float mean() const { return sum / count; }
};
enum class Mode : int { plain, doubled };

namespace tools {
  template <typename T> struct Relu { T operator()(T v) const { return v > T(0) ? v : T(0); } };
  inline float cube(float v) { return v * v * v; }
  kernel void in_namespace(device float* out, device const float* x, uint i [[thread_position_in_grid]]) { out[i] = cube(x[i]); }
}

template <typename T, int N>
[[kernel]] void scaled(device T* out [[buffer(0)]], device const T* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = x[i] * T(N);
}
template [[host_name("scaled_float_3")]] [[kernel]] void scaled<float, 3>(device float*, device const float*, uint);
template [[host_name("scaled_half_2")]] kernel void scaled<half, 2>(device half* out [[buffer(0)]], device const half* x [[buffer(1)]], uint i [[thread_position_in_grid]]);
#define INSTANTIATE(T, N) template [[host_name("scaled_" #T "_" #N)]] kernel decltype(scaled<T, N>) scaled<T, N>;
INSTANTIATE(bfloat, 4)
INSTANTIATE(int, 5)

template <typename Op>
kernel void apply(device float* out, device const float* x, uint i [[thread_position_in_grid]]) { out[i] = Op()(x[i]); }
template [[host_name("apply_relu")]] kernel void apply<tools::Relu<float>>(device float*, device const float*, uint);

template <typename T> T repeated(T v, int times) { T r = T(0); for (int k = 0; k < times; ++k) r += v; return r; }
void add_to(device float& target, float v) { target += v; }
void fill(thread float* a, int n, float v) { for (int k = 0; k < n; ++k) a[k] = v * k; }
float pick(constant float* t, uint k) { return t[k % 4]; }

kernel void macros(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  float2 v = SWAP(float2(x[i], 3.0f));
  out[i] = SQUARE(x[i]) + v.x;
}
kernel void tables(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  out[i] = table[i % 4] * x[i] + pick(table, i + 1) + STEPS + SCALE;
}
kernel void constants_used(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  out[i] = (twice ? 2.0f : 1.0f) * x[i] + float(1 << shift);
}
kernel void constants_maybe(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  out[i] = x[i] + (is_function_constant_defined(maybe) ? maybe : 10.0f);
}
kernel void constants_bfloat(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  out[i] = float(factor) * x[i];
}
kernel void structure(device float* out, device const float* x, constant Params& p, uint i [[thread_position_in_grid]]) {
  Params q = p;
  if (i < q.n) out[i] = x[i] * p.scale + q.bias.w + p.bias.x + q.tail.z;
}
kernel void shape_argument(device float* out, device const float* x, constant Shape& s, uint2 p [[thread_position_in_grid]]) {
  if (int(p.x) < s.cols && int(p.y) < s.rows) out[p.x * s.strides[1] + p.y * s.strides[0]] = x[p.y * s.cols + p.x];
}
kernel void members(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  Accumulator a = {0.0f, 0};
  for (int k = 0; k < 4; ++k) a.add(x[(i + k) % 64]);
  out[i] = a.mean();
}
kernel void enums(device float* out, device const float* x, constant int& mode, uint i [[thread_position_in_grid]]) {
  switch (Mode(mode)) { case Mode::plain: out[i] = x[i]; break; case Mode::doubled: out[i] = 2 * x[i]; break; }
}
kernel void function_templates(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  out[i] = repeated(x[i], 3) + float(repeated<int>(2, 2));
}
kernel void references(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  float a[5]; fill(a, 5, x[i]); out[i] = a[4]; add_to(out[i], 1.0f);
}
kernel void lambdas(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  auto f = [&](float v) { return v + x[i]; };
  out[i] = f(1.0f) + f(2.0f);
}
kernel void scalars(device float* out, constant float& a, constant int& b, constant uint& c, constant bool& d, constant long& e, constant half& f, constant uchar& g, uint i [[thread_position_in_grid]]) {
  out[i] = a + b + c + (d ? 1 : 0) + e + f + g;
}
kernel void lists(device float* out, constant long* shape, constant float4& v, constant int3& w, uint i [[thread_position_in_grid]]) {
  out[i] = shape[0] * 100 + shape[1] + v.w + w.z;
}
kernel void buffer_order(device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]], constant float& s [[buffer(2)]], device float* out [[buffer(0)]]) {
  out[i] = x[i] * s;
}
kernel void type_traits(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  typedef metal::conditional_t<metal::is_same_v<float, float>, float, half> Chosen;
  if constexpr (sizeof(Chosen) == 4) out[i] = x[i]; else out[i] = 0;
}
[[max_total_threads_per_threadgroup(128)]] kernel void limited(device float* out, device const float* x, uint i [[thread_position_in_grid]]) { out[i] = x[i]; }
kernel void local_arrays(device float* out, device const float* x, uint i [[thread_position_in_grid]]) {
  float window[3][2]; for (int k = 0; k < 3; ++k) { window[k][0] = x[(i + k) % 64]; window[k][1] = k; }
  float s = 0; for (auto& row : window) s += row[0] * row[1];
  out[i] = s;
}
"""
)

PARAMS = torch.frombuffer(
    bytearray(struct.pack("<If8x4f3f4x", 60, 2.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)), dtype=torch.uint8
)
SHAPE = torch.tensor([8, 8, 1, 8], dtype=torch.int32)


def case(name: str, expected: torch.Tensor, *inputs: object, **more: object) -> Case:
    return Case(name, "", torch.zeros_like(expected), expected, inputs or (X,), **more)  # type: ignore[arg-type]


LANGUAGE: list[Case] = [
    case("in_namespace", X**3),
    case("scaled_float_3", X * 3),
    case("scaled_half_2", X.half() * 2, X.half()),
    case("scaled_bfloat_4", X.bfloat16() * 4, X.bfloat16()),
    case("scaled_int_5", torch.arange(COUNT, dtype=torch.int32) * 5, torch.arange(COUNT, dtype=torch.int32)),
    case("apply_relu", X.relu()),
    case("macros", X**2 + 3),
    case("tables", 2.0 ** (torch.arange(COUNT) % 4) * X + 2.0 ** ((torch.arange(COUNT) + 1) % 4) + 3.5),
    case("constants_used", 2 * X + 8, constants={0: True, "shift": 3}),
    case("constants_maybe", X + 10),
    case("constants_bfloat", 1.5 * X, constants={"factor": 1.5}),
    case("structure", torch.cat([X[:60] * 2 + 4 + 1 + 7, torch.zeros(4)]), X, PARAMS),
    case("shape_argument", X.view(8, 8).t().flatten(), X, SHAPE, launch={"threads": (8, 8), "group_size": (8, 8)}),
    case("members", sum(X.roll(-k) for k in range(4)) / 4),  # type: ignore[arg-type]
    case("enums", 2 * X, X, 1),
    case("function_templates", 3 * X + 4),
    case("references", 4 * X + 1),
    case("lambdas", 2 * X + 3),
    case("scalars", torch.full((COUNT,), 1.5 + -2 + 3 + 1 + 4 + 0.5 + 200), 1.5, -2, 3, True, 4, 0.5, 200, launch={"arg_casts": {6: "fp16"}}),
    case("lists", torch.full((COUNT,), 2 * 100 + 3 + 4 + 9.0), (2, 3), [1.0, 2.0, 3.0, 4.0], (7, 8, 9), launch={"arg_casts": {3: "int32"}}),
    case("buffer_order", X * 2.5, X, 2.5),
    case("type_traits", X),
    case("limited", X, launch={"group_size": None}),
    case("local_arrays", X.roll(-1) + 2 * X.roll(-2), rtol=1e-5),
]  # fmt: skip

NEURAL_SOURCE = (
    HEAD
    + r"""
kernel void softmax_rows(device float* out, device const float* x, constant uint& n, uint row [[threadgroup_position_in_grid]],
    uint lid [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simd [[simdgroup_index_in_threadgroup]], uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float shared[32];
  device const float* p = x + row * n;
  float m = -INFINITY;
  for (uint k = lid; k < n; k += size) m = max(m, p[k]);
  m = simd_max(m);
  if (lane == 0) shared[simd] = m;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  m = simd_max(lane < simds ? shared[lane] : -INFINITY);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float s = 0;
  for (uint k = lid; k < n; k += size) s += exp(p[k] - m);
  s = simd_sum(s);
  if (lane == 0) shared[simd] = s;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  s = simd_sum(lane < simds ? shared[lane] : 0.0f);
  for (uint k = lid; k < n; k += size) out[row * n + k] = exp(p[k] - m) / s;
}
kernel void layer_norm(device float* out, device const float* x, constant uint& n, constant float& eps, uint row [[threadgroup_position_in_grid]],
    uint lid [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
  threadgroup float sums[64]; threadgroup float squares[64];
  float s = 0, q = 0;
  for (uint k = lid; k < n; k += size) { float v = x[row * n + k]; s += v; q += v * v; }
  sums[lid] = s; squares[lid] = q;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint step = size / 2; step > 0; step >>= 1) {
    if (lid < step) { sums[lid] += sums[lid + step]; squares[lid] += squares[lid + step]; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  float mean = sums[0] / n, variance = squares[0] / n - mean * mean;
  for (uint k = lid; k < n; k += size) out[row * n + k] = (x[row * n + k] - mean) * rsqrt(variance + eps);
}
constant uint TILE = 8;
kernel void matmul_tiled(device float* c [[buffer(0)]], device const float* a [[buffer(1)]], device const float* b [[buffer(2)]],
    constant uint& M [[buffer(3)]], constant uint& N [[buffer(4)]], constant uint& K [[buffer(5)]],
    uint2 t [[thread_position_in_threadgroup]], uint2 g [[threadgroup_position_in_grid]]) {
  threadgroup float ta[TILE][TILE], tb[TILE][TILE];
  uint row = g.y * TILE + t.y, col = g.x * TILE + t.x;
  float sum = 0;
  for (uint k = 0; k < K; k += TILE) {
    ta[t.y][t.x] = row < M && k + t.x < K ? a[row * K + k + t.x] : 0.0f;
    tb[t.y][t.x] = col < N && k + t.y < K ? b[(k + t.y) * N + col] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = 0; j < TILE; ++j) sum = fma(ta[t.y][j], tb[j][t.x], sum);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (row < M && col < N) c[row * N + col] = sum;
}
kernel void convolution(device float* out, device const float* x, device const float* w, constant int4& size, constant int& filters,
    uint3 p [[thread_position_in_grid]]) {
  int C = size.y, H = size.z, W = size.w, n = p.z / filters, f = p.z % filters;
  if (int(p.x) >= W || int(p.y) >= H) return;
  float s = 0;
  for (int c = 0; c < C; ++c) for (int i = -1; i <= 1; ++i) for (int j = -1; j <= 1; ++j) {
    int y = int(p.y) + i, z = int(p.x) + j;
    if (y >= 0 && y < H && z >= 0 && z < W) s += x[((n * C + c) * H + y) * W + z] * w[((f * C + c) * 3 + i + 1) * 3 + j + 1];
  }
  out[((n * filters + f) * H + p.y) * W + p.x] = s;
}
kernel void attention(device float* out, device const float4* q, device const float4* k, device const float4* v, constant uint& keys, uint i [[thread_position_in_grid]]) {
  float m = -INFINITY, sum = 0; float4 acc[4] = {0, 0, 0, 0};
  for (uint j = 0; j < keys; ++j) {
    float s = 0;
    for (int d = 0; d < 4; ++d) s += dot(q[i * 4 + d], k[j * 4 + d]);
    s *= 0.25f;
    float now = max(m, s), fade = exp(m - now), e = exp(s - now);
    for (int d = 0; d < 4; ++d) acc[d] = acc[d] * fade + e * v[j * 4 + d];
    sum = sum * fade + e; m = now;
  }
  device float4* o = (device float4*)out;
  for (int d = 0; d < 4; ++d) o[i * 4 + d] = acc[d] / sum;
}
kernel void transpose_tile(device float* out, device const float* x, constant uint2& size, uint2 t [[thread_position_in_threadgroup]], uint2 g [[threadgroup_position_in_grid]]) {
  threadgroup float tile[8][9];
  uint2 p = g * 8 + t;
  if (p.x < size.x && p.y < size.y) tile[t.y][t.x] = x[p.y * size.x + p.x];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint2 r = g.yx * 8 + t;
  if (r.x < size.y && r.y < size.x) out[r.y * size.y + r.x] = tile[t.x][t.y];
}
kernel void row_sums(device float* out, device const float* x, constant uint& n, uint row [[thread_position_in_grid]]) {
  float s = 0, c = 0;
  for (uint k = 0; k < n; ++k) { float y = x[row * n + k] - c, t = s + y; c = (t - s) - y; s = t; }
  out[row] = s;
}
kernel void argmax_rows(device long* out, device const float* x, constant uint& n, uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float best = -INFINITY; uint where = 0;
  for (uint k = lane; k < n; k += 32) if (x[row * n + k] > best) { best = x[row * n + k]; where = k; }
  for (ushort d = 16; d > 0; d /= 2) {
    float other = simd_shuffle_xor(best, d); uint place = simd_shuffle_xor(where, d);
    if (other > best || (other == best && place < where)) { best = other; where = place; }
  }
  if (lane == 0) out[row] = where;
}
kernel void max_pool(device float* out, device const float* x, constant uint2& size, uint3 p [[thread_position_in_grid]]) {
  device const float* c = x + p.z * size.x * size.y + p.y * 2 * size.x + p.x * 2;
  out[(p.z * (size.y / 2) + p.y) * (size.x / 2) + p.x] = max(max(c[0], c[1]), max(c[size.x], c[size.x + 1]));
}
"""
)
NEURAL: list[Case] = [
    case("softmax_rows", ROWS.softmax(1), ROWS, 100, launch={"threads": 6 * 64, "group_size": 64}),
    case("layer_norm", torch.nn.functional.layer_norm(ROWS, (100,)), ROWS, 100, 1e-5, launch={"threads": 6 * 64, "group_size": 64}, rtol=1e-4, atol=1e-5),
    case("matmul_tiled", A @ B, A, B, 20, 24, 37, launch={"threads": (24, 24), "group_size": (8, 8)}, rtol=1e-4, atol=1e-5),
    case("convolution", torch.nn.functional.conv2d(IMAGE, WEIGHT, padding=1), IMAGE, WEIGHT, (2, 3, 9, 8), 4, launch={"threads": (8, 9, 8), "group_size": (8, 3, 1), "arg_casts": {3: "int32"}}, rtol=1e-4, atol=1e-5),
    case("attention", torch.nn.functional.scaled_dot_product_attention(Q, K, V), Q, K, V, 12, launch={"threads": 10, "group_size": 5}, rtol=1e-4, atol=1e-5),
    case("transpose_tile", ROWS.t().contiguous(), ROWS, (100, 6), launch={"threads": (104, 8), "group_size": (8, 8), "arg_casts": "int32"}),
    case("row_sums", ROWS.double().sum(1).float(), ROWS, 100, launch={"threads": 6, "group_size": 4}),
    case("argmax_rows", ROWS.argmax(1), ROWS, 100, launch={"threads": 6 * 32, "group_size": 32}),
    case("max_pool", torch.nn.functional.max_pool2d(IMAGE[:, :, :8], 2), IMAGE[:, :, :8].contiguous(), (8, 8), launch={"threads": (4, 4, 6), "group_size": (4, 4, 1), "arg_casts": "int32"}),
]  # fmt: skip
