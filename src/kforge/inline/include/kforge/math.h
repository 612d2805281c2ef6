// Mathematical functions in single precision, written so that GCC and clang vectorize the loops that call them.
//
//     #include <kforge/math.h>
//     ...
//     #pragma omp simd
//     for (int64_t i = 0; i < n; ++i) y[i] = kforge::tanh(x[i]);
//
// They have no branch, no table and no call, so a loop over them becomes vector code on x86-64 and on Arm, without
// -ffast-math. The polynomials are kforge's own minimax fits. Infinities, NaN and the ends of the range give what the
// standard library's functions give. docs/building-blocks.md has the largest error of each, over all numbers.
// Do not compile them with -ffast-math: it lets the compiler drop what infinities and NaN need.

#ifndef KFORGE_MATH_H
#define KFORGE_MATH_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace kforge {

// The larger of two numbers in one instruction: a choice by a comparison is that on x86-64, and five on aarch64. Of a
// number and NaN it is either of them; `maximum` and `minimum` keep NaN.
static inline float larger(float a, float b) {
#ifdef __aarch64__
    return __builtin_fmaxf(a, b);
#else
    return a > b ? a : b;
#endif
}

static inline float smaller(float a, float b) {
#ifdef __aarch64__
    return __builtin_fminf(a, b);
#else
    return a < b ? a : b;
#endif
}

// As torch's maximum and minimum: NaN stays NaN.
static inline float maximum(float a, float b) { return (a < b) | (b != b) ? b : a; }
static inline float minimum(float a, float b) { return (a > b) | (b != b) ? b : a; }

// exp(x) = 2^k exp(r) with r in [-ln 2 / 2, ln 2 / 2]: a polynomial, and k put into the exponent bits. Results below
// 2.5e-38 are zero.
static inline float exp(float x) {
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

// log(x) = k ln 2 + log(m) with m in [sqrt(1/2), sqrt(2)].
static inline float log(float x) {
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

// exp(x) - 1 without the loss that the subtraction has near zero.
static inline float expm1(float x) {
    float p = 2.495704588e-5f;
    p = p * x + 1.996218508e-4f;
    p = p * x + 1.388860794e-3f;
    p = p * x + 8.333182044e-3f;
    p = p * x + 4.166666836e-2f;
    p = p * x + 1.666666714e-1f;
    p = p * x + 0.5f;
    const float far_out = exp(x) - 1.0f;
    return std::fabs(x) < 0.5f ? x + x * x * p : far_out;
}

// log(1 + x), and what the addition has lost.
static inline float log1p(float x) {
    const float finite = x > 3e38f ? 3e38f : x, sum = 1.0f + finite;
    const float divisor = sum > 0.0f ? sum : 1.0f, lost = finite - (sum - 1.0f);
    return log(1.0f + x) + lost / divisor;
}

// A quotient of polynomials of x * x, up to where single precision has reached one.
static inline float tanh(float x) {
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

// A quotient of polynomials of x * x, up to where single precision has reached one.
static inline float erf(float x) {
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

static inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

}  // namespace kforge

#endif
