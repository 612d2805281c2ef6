"""Kernels about the math library, integers, conversions and small floating point types."""

from __future__ import annotations

import math

import torch
from tests.inline.metal.case import COUNT, Case, elementwise, noise, numbers

X = numbers()
POSITIVE = numbers(0.05, 6.0)
UNIT = numbers(-0.98, 0.98)
Y = noise(COUNT, seed=1)
I = torch.arange(-32, 32, dtype=torch.int32)  # noqa: E741 - integers
J = torch.arange(1, COUNT + 1, dtype=torch.int32)
SHORT = torch.arange(-320, 320, 10, dtype=torch.int16)
BYTE = torch.arange(0, 256, 4, dtype=torch.uint8)
LONG = torch.arange(COUNT, dtype=torch.int64) * (1 << 34)

_UNARY = {
    "exp": (torch.exp, X), "exp2": (torch.exp2, X), "log": (torch.log, POSITIVE), "log2": (torch.log2, POSITIVE),
    "log10": (torch.log10, POSITIVE), "sin": (torch.sin, X), "cos": (torch.cos, X), "tan": (torch.tan, UNIT),
    "asin": (torch.asin, UNIT), "acos": (torch.acos, UNIT), "atan": (torch.atan, X), "sinh": (torch.sinh, X),
    "cosh": (torch.cosh, X), "tanh": (torch.tanh, X), "asinh": (torch.asinh, X), "acosh": (torch.acosh, POSITIVE + 1),
    "atanh": (torch.atanh, UNIT), "sqrt": (torch.sqrt, POSITIVE), "rsqrt": (torch.rsqrt, POSITIVE), "ceil": (torch.ceil, X),
    "floor": (torch.floor, X), "trunc": (torch.trunc, X), "rint": (torch.round, X), "fabs": (torch.abs, X),
    "abs": (torch.abs, X), "sign": (torch.sign, X), "saturate": (lambda x: x.clamp(0, 1), X),
    "fract": (lambda x: x - x.floor(), X), "exp10": (lambda x: 10**x, UNIT),
}  # fmt: skip
_BINARY = {
    "pow": (torch.pow, POSITIVE, Y), "powr": (torch.pow, POSITIVE, Y), "atan2": (torch.atan2, X, Y),
    "fmod": (torch.fmod, X, POSITIVE), "fmax": (torch.maximum, X, Y), "fmin": (torch.minimum, X, Y),
    "max": (torch.maximum, X, Y), "min": (torch.minimum, X, Y), "copysign": (torch.copysign, X, Y),
    "step": (lambda x, y: (y >= x).float(), X, Y), "fdim": (lambda x, y: (x - y).clamp(min=0), X, Y),
}  # fmt: skip

MATH: list[Case] = [
    *(elementwise(f"math_{name}", f"out[i] = {name}(x[i]);", result, x) for name, (result, x) in _UNARY.items()),
    *(elementwise(f"math_{name}", f"out[i] = {name}(x[i], y[i]);", result, x, y) for name, (result, x, y) in _BINARY.items()),
    elementwise("math_fast_exp", "out[i] = fast::exp(x[i]);", torch.exp, X),
    elementwise("math_precise_tanh", "out[i] = metal::precise::tanh(x[i]);", torch.tanh, X),
    elementwise("math_qualified", "out[i] = metal::sqrt(x[i]);", torch.sqrt, POSITIVE),
    elementwise("math_fma", "out[i] = fma(x[i], y[i], 1.0f);", lambda x, y: (x.double() * y.double() + 1).float(), X, Y),
    elementwise("math_mix", "out[i] = mix(x[i], y[i], 0.25f);", lambda x, y: x + (y - x) * 0.25, X, Y),
    elementwise("math_clamp", "out[i] = clamp(x[i], -1.0f, 2.0f);", lambda x: x.clamp(-1, 2), X),
    elementwise("math_smoothstep", "out[i] = smoothstep(0.0f, 1.0f, x[i]);", lambda x: x.clamp(0, 1) ** 2 * (3 - 2 * x.clamp(0, 1)), X),
    elementwise("math_max3", "out[i] = max3(x[i], y[i], 0.5f) + min3(x[i], y[i], 0.0f);", lambda x, y: torch.maximum(x, y).clamp(min=0.5) + torch.minimum(x, y).clamp(max=0.0), X, Y),
    elementwise("math_median3", "out[i] = median3(x[i], y[i], 0.0f);", lambda x, y: torch.stack([x, y, torch.zeros_like(x)]).median(0).values, X, Y),
    elementwise("math_ldexp", "out[i] = ldexp(x[i], 3);", lambda x: x * 8, X),
    elementwise("math_sincos", "float c; float s = sincos(x[i], c); out[i] = s + 2 * c;", lambda x: x.sin() + 2 * x.cos(), X),
    elementwise("math_modf", "float whole; float part = modf(x[i], whole); out[i] = whole * 10 + part;", lambda x: x.trunc() * 10 + x.frac(), X),
    elementwise("math_frexp", "int e; float m = frexp(x[i], e); out[i] = m + e;", lambda x: sum(torch.frexp(x)), POSITIVE),
    elementwise("math_select", "out[i] = select(x[i], y[i], x[i] < y[i]);", torch.maximum, X, Y),
    elementwise("math_isnan", "float v = x[i] < 0 ? NAN : x[i]; out[i] = isnan(v) ? 1.0 : isfinite(v) ? 2.0 : 3.0;", lambda x: torch.where(x < 0, 1.0, 2.0), X),
    elementwise("math_isinf", "float v = x[i] < 0 ? -INFINITY : x[i]; out[i] = isinf(v) + 2 * signbit(v);", lambda x: torch.where(x < 0, 3.0, 0.0), X),
    elementwise("math_constants", "out[i] = x[i] * M_PI_F + FLT_EPSILON + M_SQRT2_F;", lambda x: x * math.pi + 1.1920929e-7 + math.sqrt(2), X),
    elementwise("math_limits", "out[i] = min(numeric_limits<float>::max(), x[i]) + (numeric_limits<int>::max() == INT_MAX);", lambda x: x + 1, X),
    elementwise("math_sinpi", "out[i] = sinpi(x[i]) + cospi(x[i]);", lambda x: (x * math.pi).sin() + (x * math.pi).cos(), UNIT, atol=1e-5),
    elementwise("math_erf_series", "float t = x[i]; float s = t; float p = t; for (int k = 1; k < 30; ++k) { p *= -t * t / k; s += p / (2 * k + 1); } out[i] = s * M_2_SQRTPI_F;", torch.erf, UNIT),
    elementwise("math_pow_of_int", "out[i] = pow(2, x[i]) + pow(x[i], 2);", lambda x: 2**x + x**2, POSITIVE),
    elementwise("math_array", "metal::array<float, 3> a; for (int k = 0; k < 3; ++k) a[k] = x[i] * k; out[i] = a[1] + a[2] + float(a.size());", lambda x: 3 * x + 3, X),
    elementwise("math_gelu", "out[i] = 0.5 * x[i] * (1.0 + tanh(0.7978845608 * (x[i] + 0.044715 * x[i] * x[i] * x[i])));", lambda x: torch.nn.functional.gelu(x, approximate="tanh"), X),
]  # fmt: skip

INTEGERS: list[Case] = [
    elementwise("int_abs", "out[i] = abs(x[i]);", torch.abs, I, out=torch.int32),
    elementwise("int_max", "out[i] = max(x[i], y[i] - 20) + min(x[i], 3);", lambda x, y: torch.maximum(x, y - 20) + x.clamp(max=3), I, J, out=torch.int32),
    elementwise("int_clamp", "out[i] = clamp(x[i], -5, 7);", lambda x: x.clamp(-5, 7), I, out=torch.int32),
    elementwise("int_popcount", "out[i] = popcount(uint(x[i]));", lambda x: torch.tensor([bin(v & 0xFFFFFFFF).count("1") for v in x.tolist()]), I, out=torch.int32),
    elementwise("int_clz", "out[i] = clz(x[i]) * 100 + ctz(x[i]);", lambda x: torch.tensor([(32 - v.bit_length()) * 100 + (v & -v).bit_length() - 1 for v in x.tolist()]), J, out=torch.int32),
    elementwise("int_reverse", "out[i] = int(reverse_bits(uint(x[i])) >> 16);", lambda x: torch.tensor([int(f"{v:032b}"[::-1], 2) >> 16 for v in x.tolist()]), J, out=torch.int32),
    elementwise("int_rotate", "out[i] = int(rotate(uint(x[i]), 3u));", lambda x: x << 3, J, out=torch.int32),
    elementwise("int_mulhi", "out[i] = mulhi(x[i] << 24, y[i] << 10);", lambda x, y: (((x.long() << 24) * (y.long() << 10)) >> 32), I, J, out=torch.int32),
    elementwise("int_addsat", "out[i] = addsat(short(x[i] * 1000), short(30000));", lambda x: (x * 1000 + 30000).clamp(-32768, 32767), I, out=torch.int32),
    elementwise("int_absdiff", "out[i] = absdiff(x[i], y[i]);", lambda x, y: (x - y).abs(), I, J, out=torch.int32),
    elementwise("int_hadd", "out[i] = hadd(x[i], y[i]) * 1000 + rhadd(x[i], y[i]);", lambda x, y: ((x + y) >> 1) * 1000 + ((x + y + 1) >> 1), I, J, out=torch.int32),
    elementwise("int_extract", "out[i] = extract_bits(uint(x[i]), 2u, 3u) + 8 * insert_bits(0u, uint(x[i]), 1u, 4u);", lambda x: ((x >> 2) & 7) + 8 * ((x & 15) << 1), J, out=torch.int32),
    elementwise("int_division", "out[i] = x[i] / 7 * 100 + x[i] % 7;", lambda x: torch.div(x, 7, rounding_mode="trunc") * 100 + torch.fmod(x, 7), I, out=torch.int32),
    elementwise("int_shifts", "out[i] = (x[i] >> 2) + (x[i] << 3) + int(uint(x[i]) >> 28);", lambda x: (x >> 2) + (x << 3) + ((x.long() & 0xFFFFFFFF) >> 28).int(), I, out=torch.int32),
    elementwise("short_sum", "out[i] = x[i] + short(1);", lambda x: x + 1, SHORT, out=torch.int16),
    elementwise("int_wraps", "out[i] = -(x[i] * 100000000 + INT_MAX) - 7;", lambda x: -(x * 100000000 + (2**31 - 1)) - 7, I, out=torch.int32),
    elementwise("int_saturates", "out[i] = int(x[i] * 1e30f);", lambda x: torch.where(x > 0, 2**31 - 1, -(2**31)), X, out=torch.int32),
    elementwise("uint_saturates", "out[i] = uint(x[i] * 1e30f);", lambda x: torch.where(x > 0, 2**32 - 1, 0), X, out=torch.uint32),
    elementwise("int_of_nan", "out[i] = int(sqrt(-1.0f - x[i] * x[i]));", torch.zeros_like, X, out=torch.int32),
    elementwise("uchar_wraps", "out[i] = uchar(x[i] + 200);", lambda x: x + 200, BYTE, out=torch.uint8),
    elementwise("char_is_signed", "char c = x[i]; out[i] = c;", lambda x: x.view(torch.int8).int(), BYTE.view(torch.int8), out=torch.int32),
    elementwise("long_is_64_bits", "out[i] = x[i] * 2 + long(sizeof(long));", lambda x: x * 2 + 8, LONG, out=torch.int64),
    elementwise("bool_result", "out[i] = x[i] > 0 && x[i] < 2.0f;", lambda x: (x > 0) & (x < 2), X, out=torch.bool),
    elementwise("bool_input", "out[i] = x[i] ? 1.0f : -1.0f;", lambda x: torch.where(x, 1.0, -1.0), X > 0),
    elementwise("float_to_int", "out[i] = int(x[i] * 10.0f);", lambda x: (x * 10).int(), X, out=torch.int32),
    elementwise("float_bits", "out[i] = as_type<int>(x[i]) ^ 1;", lambda x: x.view(torch.int32) ^ 1, X, out=torch.int32),
    elementwise("literal_is_float", "out[i] = x[i] + sizeof(1.0) * 1.0;", lambda x: x + 4, X),
]  # fmt: skip

HALF = X.half()
BF = X.bfloat16()
SMALL: list[Case] = [
    elementwise("half_sum", "out[i] = x[i] + y[i];", lambda x, y: x + y, HALF, Y.half(), out=torch.float16),
    elementwise("half_literal", "out[i] = x[i] * 2.0h + half(0.5);", lambda x: x * 2 + 0.5, HALF, out=torch.float16, rtol=1e-3, atol=1e-3),
    elementwise("half_exp", "out[i] = exp(x[i]);", lambda x: x.float().exp(), HALF, out=torch.float16),
    elementwise("half_to_float", "float v = x[i]; out[i] = v * v;", lambda x: x.float() ** 2, HALF),
    elementwise("half_overflow", "out[i] = half(x[i] * 40000.0f);", lambda x: (x * 40000).half(), X, out=torch.float16),
    elementwise("half_ternary", "out[i] = x[i] > 0 ? x[i] : 0;", lambda x: x.relu(), HALF, out=torch.float16),
    elementwise("half_bits", "out[i] = as_type<half>(ushort(as_type<ushort>(x[i]) ^ 0x8000));", lambda x: -x, HALF, out=torch.float16),
    elementwise("half_vector", "half4 v = half4(x[i], 1.0h, 2.0h, 3.0h); out[i] = dot(v, v);", lambda x: (x.float() ** 2 + 14), HALF, out=torch.float16, rtol=2e-3, atol=1e-3),
    elementwise("half_max", "out[i] = max(x[i], half(0)) + clamp(x[i], -1.0h, 1.0h);", lambda x: x.relu() + x.clamp(-1, 1), HALF, out=torch.float16),
    elementwise("bfloat_sum", "out[i] = x[i] + y[i];", lambda x, y: x + y, BF, Y.bfloat16(), out=torch.bfloat16),
    elementwise("bfloat_round", "out[i] = bfloat(x[i]);", lambda x: x.bfloat16(), Y, out=torch.bfloat16),
    elementwise("bfloat_to_float", "out[i] = float(x[i]) * 3;", lambda x: x.float() * 3, BF),
    elementwise("bfloat_compare", "out[i] = x[i] > bfloat(0) ? x[i] : bfloat(0);", lambda x: x.relu(), BF, out=torch.bfloat16),
    elementwise("bfloat_literal", "out[i] = x[i] * 2.0bf;", lambda x: x * 2, BF, out=torch.bfloat16),
    elementwise("bfloat_exp", "out[i] = exp(x[i]);", lambda x: x.float().exp(), BF, out=torch.bfloat16),
    elementwise("bfloat_compound", "bfloat v = x[i]; v += 1; v *= 2.0f; out[i] = v;", lambda x: (x + 1) * 2, BF, out=torch.bfloat16),
    elementwise("bfloat_vector", "bfloat4 v = bfloat4(x[i]); out[i] = float4(v).w + float(v.y);", lambda x: x.float() * 2, BF),
]  # fmt: skip
