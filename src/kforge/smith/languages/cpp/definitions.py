"""C++ source of mathematical functions (exp, log, tanh, erf, …), written so that compilers vectorize the loops that
call them.

The polynomials are kforge's own minimax fits, exact to the last two or three bits of single precision. Infinities and
NaN give the same results as the functions of the standard library.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LARGER = """
// The larger of two numbers in one instruction: a choice by a comparison is that on x86-64, and five on aarch64.
static inline float larger(float a, float b) {
#ifdef __aarch64__
    return __builtin_fmaxf(a, b);
#else
    return a > b ? a : b;
#endif
}
"""

_SMALLER = """
static inline float smaller(float a, float b) {
#ifdef __aarch64__
    return __builtin_fminf(a, b);
#else
    return a < b ? a : b;
#endif
}
"""

_EXTREME = """
// As torch's {0}: what is not a number stays. Beside a number, the second question is answered before the loop.
static inline float {0}_of(float a, float b) {{ return (a {1} b) | (b != b) ? b : a; }}
"""

_EXP = """
// exp(x) = 2^k exp(r) with r in [-ln 2 / 2, ln 2 / 2]: a polynomial, and k put into the exponent bits.
static inline float exp_of(float x) {
    const float inside = smaller(larger(x, -86.6f), 89.0f);  // for NaN some number, which r is not
    const float k = (inside * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.395605185e-3f;
    p = p * r + 8.375128581e-3f;
    p = p * r + 4.166608367e-2f;
    p = p * r + 1.666641548e-1f;
    p = p * r + 5.000000168e-1f;
    p = p * r + 1.000000038f;
    p = p * r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(k) + 126) << 23;  // 2^(k - 1), since 2^128 is no number
    float power;
    std::memcpy(&power, &bits, sizeof power);
    const float value = p * power * 2.0f;
    return x < -86.6f ? 0.0f : value;
}
"""

_LOG = """
// log(x) = k ln 2 + log(m) with m in [sqrt(1/2), sqrt(2)].
static inline float log_of(float x) {
    const bool tiny = x < 1.17549435e-38f;
    const float grown = x * 8388608.0f, scaled = tiny ? grown : x, shift = tiny ? 23.0f : 0.0f;
    int32_t bits;
    std::memcpy(&bits, &scaled, sizeof bits);
    const int32_t k = (bits - 0x3f3504f3) >> 23;
    const int32_t mantissa_bits = bits - k * (1 << 23);
    float m;
    std::memcpy(&m, &mantissa_bits, sizeof m);
    const float f = m - 1.0f, exponent = static_cast<float>(k) - shift;
    float p = -8.064553267e-2f;
    p = p * f + 1.291782159e-1f;
    p = p * f - 1.307256941e-1f;
    p = p * f + 1.417346258e-1f;
    p = p * f - 1.662891941e-1f;
    p = p * f + 2.000269516e-1f;
    p = p * f - 2.500075123e-1f;
    p = p * f + 3.333331295e-1f;
    p = p * f - 4.999999773e-1f;
    const float value = exponent * 0.693359375f + (f + (f * f * p - exponent * 2.12194440e-4f));
    // added, not chosen: a choice among three becomes a branch, and a loop with one is not vectorized
    const float high = x == INFINITY ? INFINITY : 0.0f, low = x == 0.0f ? -INFINITY : 0.0f;
    const float nothing = x >= 0.0f ? 0.0f : NAN;
    return (value + high) + (low + nothing);
}
"""

_EXPM1 = """
// exp(x) - 1 without the loss that the subtraction has near zero.
static inline float expm1_of(float x) {
    float p = 2.495704588e-5f;
    p = p * x + 1.996218508e-4f;
    p = p * x + 1.388860794e-3f;
    p = p * x + 8.333182044e-3f;
    p = p * x + 4.166666836e-2f;
    p = p * x + 1.666666714e-1f;
    p = p * x + 0.5f;
    const float far_out = exp_of(x) - 1.0f;
    return std::fabs(x) < 0.5f ? x + x * x * p : far_out;
}
"""

_LOG1P = """
// log(1 + x), and what the addition has lost.
static inline float log1p_of(float x) {
    const float finite = x > 3e38f ? 3e38f : x, sum = 1.0f + finite;
    const float divisor = sum > 0.0f ? sum : 1.0f, lost = finite - (sum - 1.0f);
    return log_of(1.0f + x) + lost / divisor;
}
"""

_TANH = """
// A quotient of polynomials of x * x, up to where single precision has reached one.
static inline float tanh_of(float x) {
    const float s = smaller(x * x, 81.0f);
    float p = -8.488745830e-14f;
    p = p * s + 5.277961711e-11f;
    p = p * s - 2.022525198e-8f;
    p = p * s + 1.115431434e-5f;
    p = p * s + 3.103956763e-3f;
    p = p * s + 1.308401058e-1f;
    p = p * s + 9.999999934e-1f;
    float q = 2.546146040e-4f;
    q = q * s + 2.449518054e-2f;
    q = q * s + 4.641733768e-1f;
    q = q * s + 1.0f;
    const float value = x * p / q;
    // exactly one far out: what a formula multiplies the rest with may be large
    return std::fabs(x) > 8.9f ? std::copysign(1.0f, x) : value;
}
"""

_ERF = """
// A quotient of polynomials of x * x, up to where single precision has reached one.
static inline float erf_of(float x) {
    const float s = smaller(x * x, 15.21f);
    float p = -1.267699960e-8f;
    p = p * s + 4.586487548e-6f;
    p = p * s + 3.758999959e-4f;
    p = p * s + 3.835005416e-3f;
    p = p * s + 5.422104958e-2f;
    p = p * s + 1.851063582e-1f;
    p = p * s + 1.128379169f;
    float q = 6.218574781e-5f;
    q = q * s + 1.299645101e-3f;
    q = q * s + 1.541975709e-2f;
    q = q * s + 1.138449010e-1f;
    q = q * s + 4.973796429e-1f;
    q = q * s + 1.0f;
    const float value = x * p / q;
    // exactly one far out: what a formula multiplies the rest with may be large
    return std::fabs(x) > 3.88f ? std::copysign(1.0f, x) : value;
}
"""

_SIGMOID = """
static inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }
"""

_LARGE_PAGES = """
#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

// Fresh memory comes page by page, when each is touched first: of large pages there are few. It is a hint, and nothing
// happens where the system has none. Rounded outwards, since a page that ends elsewhere must be large as a whole.
static inline void in_large_pages(void* memory, uintptr_t bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 1 << 21, at = reinterpret_cast<uintptr_t>(memory);
    const uintptr_t begin = at / page * page, end = (at + bytes + page - 1) / page * page;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}
"""


def _file(name: str) -> str:
    return "\n" + (Path(__file__).parent / f"{name}.h").read_text(encoding="utf-8")


_FILES = ("matrices", "matrix_unit", "matrix_product", "tiny_product", "convolution", "direct_convolution")
_TEXTS = MappingProxyType(
    {
        "larger": _LARGER, "smaller": _SMALLER, "exp": _EXP, "log": _LOG,
        "maximum": _EXTREME.format("maximum", "<"), "minimum": _EXTREME.format("minimum", ">"),
        "expm1": _EXPM1, "log1p": _LOG1P, "tanh": _TANH, "erf": _ERF,
        "sigmoid": _SIGMOID, "large_pages": _LARGE_PAGES,
        **{name: _file(name) for name in _FILES},
    }
)  # fmt: skip
_NEEDS = MappingProxyType(
    {
        "exp": ("larger", "smaller"), "tanh": ("smaller",), "erf": ("smaller",), "sigmoid": ("exp",),
        "expm1": ("exp",), "log1p": ("log",),
        "matrix_unit": ("matrices",), "tiny_product": ("matrices",), "direct_convolution": ("matrices",),
    }
)  # fmt: skip


def texts(names: Iterable[str]) -> str:
    """Return the C++ definitions of the named functions, and of all functions that they call, each once."""
    wanted, found = set(), [name for name in names if name]
    while found:
        wanted.add(name := found.pop())
        found += _NEEDS.get(name, ())
    return "".join(text for name, text in _TEXTS.items() if name in wanted)
