// The math library: floating point, integer, relational and geometric functions. Single precision is the host's libm.
#pragma once
#include "vector.h"

using metal::as_type;

namespace metal {
template <class T> using kf_if_float = enable_if_t<kf_is_float<T>>;
template <class T> using kf_if_integer = enable_if_t<is_integral_v<T>>;

// An argument of a function whose other arguments are vectors may be a scalar: it counts for every component.
template <class T, int N, class A> KFC vec<T, N> kf_spread(const A& a) { return vec<T, N>(a); }
template <class A, class B> struct kf_pair {
  static_assert(kf_size<A> == kf_size<B> || kf_size<A> == 1 || kf_size<B> == 1, "vectors of different lengths");
  static constexpr int size = kf_size<A> > kf_size<B> ? kf_size<A> : kf_size<B>;
  typedef conditional_t<(kf_size<A> >= kf_size<B> && kf_is_vector<A>), kf_element<A>,
                        conditional_t<kf_is_vector<B>, kf_element<B>, kf_wider_t<A, B>>> element;
};
template <class A> KFC auto kf_at(const A& a, int i) {
  if constexpr (kf_is_vector<A>) return a[i];
  else return a;
}

#define KF_FLOAT_1(NAME, EXPRESSION)                                                                   \
  template <class T, class = kf_if_float<T>> KFC T NAME(T value) { float x = float(value); return T(EXPRESSION); } \
  template <class T, int N, class = kf_if_float<T>> KFC vec<T, N> NAME(vec<T, N> v) {                  \
    vec<T, N> r(T(0));                                                                                 \
    for (int i = 0; i < N; ++i) r[i] = NAME(v[i]);                                                     \
    return r;                                                                                          \
  }
KF_FLOAT_1(acos, __builtin_acosf(x))
KF_FLOAT_1(acosh, __builtin_acoshf(x))
KF_FLOAT_1(asin, __builtin_asinf(x))
KF_FLOAT_1(asinh, __builtin_asinhf(x))
KF_FLOAT_1(atan, __builtin_atanf(x))
KF_FLOAT_1(atanh, __builtin_atanhf(x))
KF_FLOAT_1(ceil, __builtin_ceilf(x))
KF_FLOAT_1(cos, __builtin_cosf(x))
KF_FLOAT_1(cosh, __builtin_coshf(x))
KF_FLOAT_1(cospi, __builtin_cosf(x * M_PI_F))
KF_FLOAT_1(exp, __builtin_expf(x))
KF_FLOAT_1(exp2, __builtin_exp2f(x))
KF_FLOAT_1(exp10, __builtin_powf(10.0f, x))
KF_FLOAT_1(fabs, __builtin_fabsf(x))
KF_FLOAT_1(floor, __builtin_floorf(x))
KF_FLOAT_1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
KF_FLOAT_1(log, __builtin_logf(x))
KF_FLOAT_1(log2, __builtin_log2f(x))
KF_FLOAT_1(log10, __builtin_log10f(x))
KF_FLOAT_1(rint, __builtin_rintf(x))
KF_FLOAT_1(round, __builtin_roundf(x))
KF_FLOAT_1(rsqrt, 1.0f / __builtin_sqrtf(x))
KF_FLOAT_1(sin, __builtin_sinf(x))
KF_FLOAT_1(sinh, __builtin_sinhf(x))
KF_FLOAT_1(sinpi, __builtin_sinf(x * M_PI_F))
KF_FLOAT_1(sqrt, __builtin_sqrtf(x))
KF_FLOAT_1(tan, __builtin_tanf(x))
KF_FLOAT_1(tanh, __builtin_tanhf(x))
KF_FLOAT_1(tanpi, __builtin_tanf(x * M_PI_F))
KF_FLOAT_1(trunc, __builtin_truncf(x))
KF_FLOAT_1(saturate, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
KF_FLOAT_1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
KF_FLOAT_1(recip, 1.0f / x)
KF_FLOAT_1(degrees, x * (180.0f / M_PI_F))
KF_FLOAT_1(radians, x * (M_PI_F / 180.0f))
#undef KF_FLOAT_1

// Arguments are scalars or vectors of floating point types; scalars are spread.
#define KF_FLOAT_2(NAME, EXPRESSION)                                                                          \
  template <class A, class B, class = enable_if_t<kf_is_float<kf_element<A>> || kf_is_float<kf_element<B>>>>  \
  KFC auto NAME(A a, B b) {                                                                                   \
    typedef typename kf_pair<A, B>::element T;                                                                \
    if constexpr (kf_pair<A, B>::size == 1) {                                                                 \
      float x = float(a), y = float(b);                                                                       \
      return T(EXPRESSION);                                                                                   \
    } else {                                                                                                  \
      vec<T, kf_pair<A, B>::size> r(T(0));                                                                    \
      for (int i = 0; i < kf_pair<A, B>::size; ++i) r[i] = T(NAME(T(kf_at(a, i)), T(kf_at(b, i))));           \
      return r;                                                                                               \
    }                                                                                                         \
  }
KF_FLOAT_2(atan2, __builtin_atan2f(x, y))
KF_FLOAT_2(copysign, __builtin_copysignf(x, y))
KF_FLOAT_2(fdim, __builtin_fdimf(x, y))
KF_FLOAT_2(fmax, __builtin_fmaxf(x, y))
KF_FLOAT_2(fmin, __builtin_fminf(x, y))
KF_FLOAT_2(fmod, __builtin_fmodf(x, y))
KF_FLOAT_2(nextafter, __builtin_nextafterf(x, y))
KF_FLOAT_2(pow, __builtin_powf(x, y))
KF_FLOAT_2(powr, __builtin_powf(x, y))
KF_FLOAT_2(divide, x / y)
KF_FLOAT_2(step, y < x ? 0.0f : 1.0f)
KF_FLOAT_2(ldexp, __builtin_ldexpf(x, int(y)))
#undef KF_FLOAT_2

// Functions that exist for every arithmetic type. Metal finds a call with different types ambiguous, and so does this.
template <class A, class B> constexpr bool kf_agree =
    is_same_v<kf_element<A>, kf_element<B>> || (kf_is_float<kf_element<A>> && kf_is_float<kf_element<B>>)
    || (kf_is_vector<A> != kf_is_vector<B>);
#define KF_ANY_2(NAME, EXPRESSION)                                                                                    \
  template <class A, class B> KFC enable_if_t<kf_agree<A, B>, conditional_t<kf_pair<A, B>::size == 1,                 \
      typename kf_pair<A, B>::element, vec<typename kf_pair<A, B>::element, (kf_pair<A, B>::size > 1 ? kf_pair<A, B>::size : 2)>>> \
  NAME(A a, B b) {                                                                                                    \
    typedef typename kf_pair<A, B>::element T;                                                                        \
    if constexpr (kf_pair<A, B>::size == 1) {                                                                         \
      T x = T(a), y = T(b);                                                                                           \
      return T(EXPRESSION);                                                                                           \
    } else {                                                                                                          \
      vec<T, kf_pair<A, B>::size> r(T(0));                                                                            \
      for (int i = 0; i < kf_pair<A, B>::size; ++i) r[i] = NAME(T(kf_at(a, i)), T(kf_at(b, i)));                      \
      return r;                                                                                                       \
    }                                                                                                                 \
  }
KF_ANY_2(max, (kf_is_float<T> ? (x != x ? y : y != y ? x : x < y ? y : x) : (x < y ? y : x)))
KF_ANY_2(min, (kf_is_float<T> ? (x != x ? y : y != y ? x : y < x ? y : x) : (y < x ? y : x)))
#undef KF_ANY_2

template <class A, class B, class C, class = enable_if_t<kf_agree<A, B> && kf_agree<A, C>>>
KFC auto clamp(A x, B low, C high) { return min(max(x, low), high); }
template <class T> KFC T max3(T a, T b, T c) { return max(a, max(b, c)); }
template <class T> KFC T min3(T a, T b, T c) { return min(a, min(b, c)); }
template <class T> KFC T fmax3(T a, T b, T c) { return fmax(a, fmax(b, c)); }
template <class T> KFC T fmin3(T a, T b, T c) { return fmin(a, fmin(b, c)); }
template <class T> KFC T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
template <class T> KFC T fmedian3(T a, T b, T c) { return median3(a, b, c); }

KF float kf_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
template <class A, class B, class C, class = enable_if_t<kf_is_float<A> && kf_is_float<B> && kf_is_float<C>>>
KF kf_wider_t<kf_wider_t<A, B>, C> fma(A a, B b, C c) { return kf_wider_t<kf_wider_t<A, B>, C>(kf_fma(float(a), float(b), float(c))); }
template <class T, int N> KF vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  vec<T, N> r(T(0));
  for (int i = 0; i < N; ++i) r[i] = fma(a[i], b[i], c[i]);
  return r;
}
template <class T, int N, class S, class = enable_if_t<kf_is_scalar<S>>> KF vec<T, N> fma(vec<T, N> a, S b, vec<T, N> c) { return fma(a, vec<T, N>(b), c); }
template <class T, int N, class S, class = enable_if_t<kf_is_scalar<S>>> KF vec<T, N> fma(S a, vec<T, N> b, vec<T, N> c) { return fma(vec<T, N>(a), b, c); }
template <class A, class B, class C, class = enable_if_t<kf_is_float<kf_element<A>>>>
KFC auto mix(A a, B b, C t) { return a + (b - a) * t; }
template <class E, class T> KFC auto smoothstep(E e0, E e1, T x) {
  auto t = clamp((x - e0) / (e1 - e0), 0.0f, 1.0f);
  return t * t * (3.0f - 2.0f * t);
}

template <class T, class = enable_if_t<is_integral_v<T> && !is_same_v<T, bool>>> KFC T abs(T x) { return x < T(0) ? T(-x) : x; }
template <class T, class = kf_if_float<T>, class = void> KFC T abs(T x) { return fabs(x); }
template <class T, int N> KFC vec<T, N> abs(vec<T, N> v) { return kf_map([](T x) { return T(abs(x)); }, v); }

#define KF_INTEGER_1(NAME, EXPRESSION)                                                              \
  template <class T, class = kf_if_integer<T>> KFC T NAME(T value) { ulong x = make_unsigned_t<T>(value); return T(EXPRESSION); } \
  template <class T, int N> KFC vec<T, N> NAME(vec<T, N> v) { return kf_map([](T x) { return T(NAME(x)); }, v); }
KFC int kf_bits(size_t bytes) { return int(8 * bytes); }
KFC ulong kf_reverse(ulong x, int bits) {
  ulong r = 0;
  for (int i = 0; i < bits; ++i) r |= ((x >> i) & 1) << (bits - 1 - i);
  return r;
}
KF_INTEGER_1(clz, x == 0 ? kf_bits(sizeof(T)) : __builtin_clzl(x) - (64 - kf_bits(sizeof(T))))
KF_INTEGER_1(ctz, x == 0 ? kf_bits(sizeof(T)) : __builtin_ctzl(x))
KF_INTEGER_1(popcount, __builtin_popcountl(x))
KF_INTEGER_1(reverse_bits, kf_reverse(x, kf_bits(sizeof(T))))
#undef KF_INTEGER_1

#define KF_INTEGER_2(NAME, EXPRESSION)                                                              \
  template <class T, class = kf_if_integer<T>> KFC T NAME(T a, T b) {                               \
    __int128 x = a, y = b, low = numeric_limits<T>::min(), high = numeric_limits<T>::max();         \
    (void)low, (void)high;                                                                          \
    return T(EXPRESSION);                                                                           \
  }                                                                                                 \
  template <class T, int N> KFC vec<T, N> NAME(vec<T, N> a, vec<T, N> b) {                          \
    vec<T, N> r(T(0));                                                                              \
    for (int i = 0; i < N; ++i) r[i] = NAME(a[i], b[i]);                                            \
    return r;                                                                                       \
  }
KFC __int128 kf_within(__int128 x, __int128 low, __int128 high) { return x < low ? low : x > high ? high : x; }
KF_INTEGER_2(absdiff, x > y ? x - y : y - x)
KF_INTEGER_2(addsat, kf_within(x + y, low, high))
KF_INTEGER_2(subsat, kf_within(x - y, low, high))
KF_INTEGER_2(hadd, (x + y) >> 1)
KF_INTEGER_2(rhadd, (x + y + 1) >> 1)
KF_INTEGER_2(mulhi, (x * y) >> kf_bits(sizeof(T)))
KF_INTEGER_2(mul24, x * y)
KF_INTEGER_2(rotate, (make_unsigned_t<T>(x) << (int(y) & (kf_bits(sizeof(T)) - 1)))
                         | (make_unsigned_t<T>(x) >> (-int(y) & (kf_bits(sizeof(T)) - 1))))
#undef KF_INTEGER_2
template <class T, class = kf_if_integer<T>> KFC T mad24(T a, T b, T c) { return T(a * b + c); }
template <class T, class = kf_if_integer<T>> KFC T madhi(T a, T b, T c) { return T(mulhi(a, b) + c); }
template <class T, class = kf_if_integer<T>> KFC T madsat(T a, T b, T c) {
  return T(kf_within(__int128(a) * b + c, numeric_limits<T>::min(), numeric_limits<T>::max()));
}
template <class T, class = kf_if_integer<T>> KFC T extract_bits(T x, uint offset, uint bits) {
  if (bits == 0) return T(0);
  uint size = 8 * sizeof(T);
  return T(T(make_unsigned_t<T>(x) << (size - bits - offset)) >> (size - bits));
}
template <class T, class = kf_if_integer<T>> KFC T insert_bits(T base, T insert, uint offset, uint bits) {
  ulong mask = bits >= 64 ? ~0UL : ((1UL << bits) - 1) << offset;
  return T((ulong(base) & ~mask) | ((ulong(insert) << offset) & mask));
}

#define KF_RELATIONAL(NAME, EXPRESSION)                                                                    \
  template <class T, class = kf_if_float<T>> KFC bool NAME(T value) { float x = float(value); return EXPRESSION; } \
  template <class T, int N> KFC vec<bool, N> NAME(vec<T, N> v) { return kf_map([](T x) { return bool(NAME(x)); }, v); }
KF_RELATIONAL(isnan, x != x)
KF_RELATIONAL(isinf, __builtin_fabsf(x) == __builtin_inff())
KF_RELATIONAL(isfinite, __builtin_fabsf(x) < __builtin_inff())
KF_RELATIONAL(isnormal, __builtin_fabsf(x) < __builtin_inff() && !(__builtin_fabsf(x) < float(numeric_limits<T>::min())))
KF_RELATIONAL(signbit, (__builtin_bit_cast(uint, x) >> 31) != 0)
#undef KF_RELATIONAL
template <class A, class B> KFC auto isordered(A a, B b) { return !(isnan(a) || isnan(b)); }
template <class A, class B> KFC auto isunordered(A a, B b) { return isnan(a) || isnan(b); }
KFC bool any(bool x) { return x; }
KFC bool all(bool x) { return x; }
template <class T, int N> KFC bool any(vec<T, N> v) { bool r = false; for (int i = 0; i < N; ++i) r = r || v[i]; return r; }
template <class T, int N> KFC bool all(vec<T, N> v) { bool r = true; for (int i = 0; i < N; ++i) r = r && v[i]; return r; }
template <class A, class B, class = enable_if_t<kf_agree<A, B> && !kf_is_vector<A>>> KFC auto select(A a, B b, bool c) {
  typedef typename kf_pair<A, B>::element T;
  return c ? T(b) : T(a);
}
template <class T, int N> KFC vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  vec<T, N> r(T(0));
  for (int i = 0; i < N; ++i) r[i] = c[i] ? b[i] : a[i];
  return r;
}
template <class T, int N> KFC vec<T, N> select(vec<T, N> a, vec<T, N> b, bool c) { return c ? b : a; }

template <class T, int N> KFC T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; ++i) sum = T(sum + a[i] * b[i]);
  return sum;
}
template <class T, int N> KF T length_squared(vec<T, N> v) { return dot(v, v); }
template <class T, int N> KF T length(vec<T, N> v) { return sqrt(dot(v, v)); }
template <class T, int N> KF T distance(vec<T, N> a, vec<T, N> b) { return length(a - b); }
template <class T, int N> KF T distance_squared(vec<T, N> a, vec<T, N> b) { return length_squared(a - b); }
template <class T, int N> KF vec<T, N> normalize(vec<T, N> v) { return v * rsqrt(dot(v, v)); }
template <class T> KFC vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
template <class T, int N> KF vec<T, N> reflect(vec<T, N> i, vec<T, N> n) { return i - n * T(2 * dot(n, i)); }
template <class T, int N> KF vec<T, N> faceforward(vec<T, N> n, vec<T, N> i, vec<T, N> r) { return dot(r, i) < T(0) ? n : -n; }

template <class T, class = kf_if_float<T>> KF T sincos(T x, T& cosine) { cosine = cos(x); return sin(x); }
template <class T, class = kf_if_float<T>> KF T modf(T x, T& whole) { whole = trunc(x); return copysign(T(x - whole), x); }
template <class T, class = kf_if_float<T>> KF T frexp(T x, int& exponent) { return T(__builtin_frexpf(float(x), &exponent)); }
template <class T, class = kf_if_float<T>> KF int ilogb(T x) { return __builtin_ilogbf(float(x)); }

KF uint pack_float_to_unorm4x8(float4 v) {
  uint r = 0;
  for (int i = 0; i < 4; ++i) r |= uint(rint(saturate(v[i]) * 255.0f)) << (8 * i);
  return r;
}
KF float4 unpack_unorm4x8_to_float(uint x) {
  return float4(float(x & 255), float((x >> 8) & 255), float((x >> 16) & 255), float(x >> 24)) / 255.0f;
}

namespace fast { using namespace ::metal; }
namespace precise { using namespace ::metal; }
}  // namespace metal
