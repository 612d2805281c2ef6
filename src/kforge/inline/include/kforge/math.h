// Mathematical functions in single precision, for C++ on the host and for the C-like languages of accelerators.
//
//     #include <kforge/math.h>
//     ...
//     #pragma omp simd
//     for (int64_t i = 0; i < n; ++i) y[i] = kforge::tanh(x[i]);
//
// In OpenCL C, which has no namespaces, the names begin with kforge_. WGSL gets the functions by the same line, from
// functions.h and math.wgsl. Infinities, NaN and the ends of the range give what torch's functions give.
// docs/building-blocks.md has the largest error of each function in each language.
// Do not compile them with fast math: it lets the compiler drop what infinities and NaN need.
//
// This file says how each language writes what functions.h is made of, and which of its own functions are good enough.

#ifndef KFORGE_MATH_H
#define KFORGE_MATH_H

#if defined(__OPENCL_VERSION__)  // ------------------------------------------------------------------ OpenCL C

#define KFORGE(NAME) kforge_##NAME
#define KFORGE_FUNCTION static inline
#define KFORGE_LARGER(A, B) fmax(A, B)
#define KFORGE_SMALLER(A, B) fmin(A, B)
#define KFORGE_ABS(X) fabs(X)
#define KFORGE_IS_NAN(X) isnan(X)
// Not the driver's tanh and erf: PoCL's tanh(-20) is one rounding unit above -1, so that x * (1 + tanh(x)) grows with x
// instead of vanishing. Ours are exactly -1 and 1 there.
#define KFORGE_HAS_EXP
#define KFORGE_HAS_LOG
#define KFORGE_HAS_EXPM1
#define KFORGE_HAS_LOG1P
KFORGE_FUNCTION float KFORGE(exp)(float x) { return exp(x); }
KFORGE_FUNCTION float KFORGE(log)(float x) { return log(x); }
KFORGE_FUNCTION float KFORGE(expm1)(float x) { return expm1(x); }
KFORGE_FUNCTION float KFORGE(log1p)(float x) { return log1p(x); }

#else  // ------------------------------------------------------------------------- C++, on the host and elsewhere

#define KFORGE(NAME) NAME

#if defined(__METAL_VERSION__)  // ----------------------------------------------------------------------- Metal

#include <metal_stdlib>
#define KFORGE_FUNCTION static inline
#define KFORGE_LARGER(A, B) metal::fmax(A, B)
#define KFORGE_SMALLER(A, B) metal::fmin(A, B)
#define KFORGE_ABS(X) metal::fabs(X)
// by its bits: the compiler may assume that there is no NaN
#define KFORGE_IS_NAN(X) ((as_type<int>(X) & 0x7fffffff) > 0x7f800000)
#define KFORGE_MAD(A, B, C) metal::fma(A, B, C)
#define KFORGE_HAS_EXP
#define KFORGE_HAS_LOG
#define KFORGE_HAS_TANH
namespace kforge {
KFORGE_FUNCTION float KFORGE(exp)(float x) { return metal::precise::exp(x); }
KFORGE_FUNCTION float KFORGE(log)(float x) { return metal::precise::log(x); }
KFORGE_FUNCTION float KFORGE(tanh)(float x) { return metal::precise::tanh(x); }
}

#elif defined(__CUDACC__) || defined(__HIP__)  // ---------------------------------------------------- CUDA and HIP

#define KFORGE_FUNCTION __device__ __forceinline__
#define KFORGE_LARGER(A, B) ::fmaxf(A, B)
#define KFORGE_SMALLER(A, B) ::fminf(A, B)
#define KFORGE_ABS(X) ::fabsf(X)
#define KFORGE_HAS_EXP
#define KFORGE_HAS_LOG
#define KFORGE_HAS_EXPM1
#define KFORGE_HAS_LOG1P
#define KFORGE_HAS_TANH
#define KFORGE_HAS_ERF
namespace kforge {
KFORGE_FUNCTION float KFORGE(exp)(float x) { return ::expf(x); }
KFORGE_FUNCTION float KFORGE(log)(float x) { return ::logf(x); }
KFORGE_FUNCTION float KFORGE(expm1)(float x) { return ::expm1f(x); }
KFORGE_FUNCTION float KFORGE(log1p)(float x) { return ::log1pf(x); }
KFORGE_FUNCTION float KFORGE(tanh)(float x) { return ::tanhf(x); }
KFORGE_FUNCTION float KFORGE(erf)(float x) { return ::erff(x); }
}

#elif defined(SYCL_LANGUAGE_VERSION)  // ------------------------------------------------------------------ SYCL

#include <sycl/builtins.hpp>
#define KFORGE_FUNCTION static inline
#define KFORGE_LARGER(A, B) sycl::fmax(A, B)
#define KFORGE_SMALLER(A, B) sycl::fmin(A, B)
#define KFORGE_ABS(X) sycl::fabs(X)
#define KFORGE_IS_NAN(X) sycl::isnan(X)
// tanh and erf are ours, as in OpenCL C: those of a driver need not be exactly -1 and 1 far from 0
#define KFORGE_HAS_EXP
#define KFORGE_HAS_LOG
#define KFORGE_HAS_EXPM1
#define KFORGE_HAS_LOG1P
namespace kforge {
KFORGE_FUNCTION float KFORGE(exp)(float x) { return sycl::exp(x); }
KFORGE_FUNCTION float KFORGE(log)(float x) { return sycl::log(x); }
KFORGE_FUNCTION float KFORGE(expm1)(float x) { return sycl::expm1(x); }
KFORGE_FUNCTION float KFORGE(log1p)(float x) { return sycl::log1p(x); }
}

#else  // ------------------------------------------------------------------------------------- C++ on the host

// Without branch, table and call, so that GCC and clang vectorize the loops that call them, without -ffast-math.
#include <cmath>
#include <cstdint>
#include <cstring>

#define KFORGE_FUNCTION static inline
// A choice by a comparison is one instruction on x86-64, and five on aarch64.
#ifdef __aarch64__
#define KFORGE_LARGER(A, B) __builtin_fmaxf(A, B)
#define KFORGE_SMALLER(A, B) __builtin_fminf(A, B)
#else
#define KFORGE_LARGER(A, B) ((A) > (B) ? (A) : (B))
#define KFORGE_SMALLER(A, B) ((A) < (B) ? (A) : (B))
#endif
#define KFORGE_ABS(X) std::fabs(X)
#define KFORGE_ONE_LIKE(X) std::copysign(1.0f, X)
#define KFORGE_ROUND(X) (((X) + 12582912.0f) - 12582912.0f)
#define KFORGE_BITS(X) kforge::bits_of(X)
#define KFORGE_FROM_BITS(X) kforge::from_bits(X)
// Arithmetic alone gives infinity and NaN.
#define KFORGE_EXP_ENDS(X, VALUE) ((X) < -86.6f ? 0.0f : (VALUE))
#define KFORGE_LOG_ENDS(X, VALUE) kforge::log_ends(X, VALUE)

namespace kforge {
static inline int32_t bits_of(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float from_bits(int32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
// Added, not chosen: a choice among three becomes a branch, and a loop with one is not vectorized.
static inline float log_ends(float x, float value) {
    const float high = x == INFINITY ? INFINITY : 0.0f, low = x == 0.0f ? -INFINITY : 0.0f;
    const float nothing = x >= 0.0f ? 0.0f : NAN;
    return (value + high) + (low + nothing);
}
}  // namespace kforge

#endif
#endif

// ------------------------------------------------------------------------------------- what most languages share

#define KFORGE_CHOOSE(CONDITION, YES, NO) ((CONDITION) ? (YES) : (NO))
#define KFORGE_INT(X) ((int)(X))
#define KFORGE_FLOAT(X) ((float)(X))
#ifndef KFORGE_IS_NAN
#define KFORGE_IS_NAN(X) ((X) != (X))
#endif
#ifndef KFORGE_MAD
#define KFORGE_MAD(A, B, C) ((A) * (B) + (C))
#endif
#ifndef KFORGE_ROUNDED
#define KFORGE_ROUNDED(X) (X)
#endif
#ifndef KFORGE_ONE_LIKE
#define KFORGE_ONE_LIKE(X) ((X) < 0.0f ? -1.0f : 1.0f)
#endif

#ifdef __cplusplus
namespace kforge {
#endif
#include <kforge/functions.h>
#ifdef __cplusplus
}  // namespace kforge
#endif

#endif
