// Scalar types of Metal, traits, and the 16-bit floating point types.
#pragma once

#define KF inline __attribute__((always_inline, nodebug))
#define KFC constexpr inline __attribute__((always_inline, nodebug))
// Where a function is called: the line, and below it the column, which tells two calls in one line apart.
#define KF_LINE unsigned kf_line = unsigned(__builtin_LINE()) << 12 | (unsigned(__builtin_COLUMN()) & 4095)

#ifdef KF_CHECK_ADDRESS_SPACES
#define KF_DEVICE __attribute__((address_space(1)))
#define KF_CONSTANT __attribute__((address_space(2)))
#define KF_THREADGROUP __attribute__((address_space(3)))
#else
#define KF_DEVICE
#define KF_CONSTANT
#define KF_THREADGROUP
#endif

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef __fp16 half;  // storage of 16 bits; arithmetic is done in float and rounded when it is stored

namespace metal {
typedef decltype(nullptr) nullptr_t;

template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  constexpr operator T() const { return V; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <bool C> using bool_constant = integral_constant<bool, C>;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;
template <bool C, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv { typedef typename remove_const<typename remove_volatile<T>::type>::type type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_pointer { typedef T type; };
template <class T> struct remove_pointer<T*> { typedef T type; };
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class...> using void_t = void;
template <class T> remove_reference_t<T>&& declval();
}  // namespace metal

// A float cut to its upper 16 bits, rounded to nearest even. A class, because clang has no such type on every target.
struct bfloat {
  ushort kf_bits;
  bfloat() = default;
#ifdef KF_CHECK_ADDRESS_SPACES
  bfloat(const bfloat&) = default;
  bfloat& operator=(const bfloat&) = default;
  constexpr bfloat(const KF_DEVICE bfloat& o) : kf_bits(o.kf_bits) {}
  constexpr bfloat(const KF_CONSTANT bfloat& o) : kf_bits(o.kf_bits) {}
  constexpr bfloat(const KF_THREADGROUP bfloat& o) : kf_bits(o.kf_bits) {}
#endif
  template <class T, class = metal::enable_if_t<__is_arithmetic(T) || metal::is_same_v<T, half>>>
  KFC bfloat(T value) : kf_bits(round(float(value))) {}
  KFC operator float() const { return __builtin_bit_cast(float, uint(kf_bits) << 16); }
  static KFC ushort round(float value) {
    uint bits = __builtin_bit_cast(uint, value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return ushort((bits >> 16) | 0x40);
    return ushort((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
  }
  KFC bfloat operator-() const { return bfloat(-float(*this)); }
  template <class T> KF bfloat& operator+=(T v) { return *this = bfloat(float(*this) + float(v)); }
  template <class T> KF bfloat& operator-=(T v) { return *this = bfloat(float(*this) - float(v)); }
  template <class T> KF bfloat& operator*=(T v) { return *this = bfloat(float(*this) * float(v)); }
  template <class T> KF bfloat& operator/=(T v) { return *this = bfloat(float(*this) / float(v)); }
};
typedef bfloat bfloat16_t;

namespace metal {
template <class T> struct is_floating_point : bool_constant<__is_floating_point(T)> {};
template <> struct is_floating_point<half> : true_type {};
template <> struct is_floating_point<bfloat> : true_type {};
template <class T> constexpr bool is_floating_point_v = is_floating_point<remove_cv_t<T>>::value;
template <class T> struct is_integral : bool_constant<__is_integral(T)> {};
template <class T> constexpr bool is_integral_v = is_integral<remove_cv_t<T>>::value;
template <class T> constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T> struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};
template <class T> struct is_signed : bool_constant<(T(-1) < T(0))> {};
template <class T> struct is_unsigned : bool_constant<!(T(-1) < T(0))> {};
template <class T> constexpr bool is_signed_v = is_signed<T>::value;
template <class T> constexpr bool is_unsigned_v = is_unsigned<T>::value;
template <class T> struct is_scalar : bool_constant<is_arithmetic_v<T> || is_pointer<T>::value || __is_enum(T)> {};
template <class T> constexpr bool is_scalar_v = is_scalar<remove_cv_t<T>>::value;
template <class T> struct is_enum : bool_constant<__is_enum(T)> {};
template <class T> constexpr bool is_enum_v = __is_enum(T);
template <class A, class B> struct is_convertible : bool_constant<__is_convertible_to(A, B)> {};
template <class A, class B> constexpr bool is_convertible_v = __is_convertible_to(A, B);
template <class T> using decay_t = remove_cv_t<remove_reference_t<T>>;
template <class T> struct decay { typedef decay_t<T> type; };
template <class T> struct make_unsigned {
  typedef conditional_t<sizeof(T) == 1, uchar,
                        conditional_t<sizeof(T) == 2, ushort, conditional_t<sizeof(T) == 4, uint, ulong>>> type;
};
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> struct make_signed {
  typedef conditional_t<sizeof(T) == 1, signed char,
                        conditional_t<sizeof(T) == 2, short, conditional_t<sizeof(T) == 4, int, long>>> type;
};
template <class T> using make_signed_t = typename make_signed<T>::type;
}  // namespace metal

#define KF_BFLOAT_OPERATOR(OP)                                                                          \
  KFC bfloat operator OP(bfloat a, bfloat b) { return bfloat(float(a) OP float(b)); }                   \
  template <class T, class = metal::enable_if_t<__is_integral(T)>>                                      \
  KFC bfloat operator OP(bfloat a, T b) { return bfloat(float(a) OP float(b)); }                        \
  template <class T, class = metal::enable_if_t<__is_integral(T)>>                                      \
  KFC bfloat operator OP(T a, bfloat b) { return bfloat(float(a) OP float(b)); }                        \
  KFC float operator OP(bfloat a, float b) { return float(a) OP b; }                                    \
  KFC float operator OP(float a, bfloat b) { return a OP float(b); }                                    \
  KFC float operator OP(bfloat a, half b) { return float(a) OP float(b); }                              \
  KFC float operator OP(half a, bfloat b) { return float(a) OP float(b); }
KF_BFLOAT_OPERATOR(+)
KF_BFLOAT_OPERATOR(-)
KF_BFLOAT_OPERATOR(*)
KF_BFLOAT_OPERATOR(/)
#undef KF_BFLOAT_OPERATOR

namespace metal {
// The type of a result of two operands: an integer takes the other's type, half and bfloat together make a float.
template <class A, class B> struct kf_wider {
  typedef conditional_t<is_integral_v<A>, B, conditional_t<is_integral_v<B>, A, float>> type;
};
template <class A> struct kf_wider<A, A> { typedef A type; };
template <class A, class B> using kf_wider_t = typename kf_wider<A, B>::type;
template <class T> constexpr bool kf_is_float = is_floating_point_v<T>;

template <class To, class From> KFC To kf_bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of the same size");
  return __builtin_bit_cast(To, from);
}

template <class T> struct numeric_limits;
#define KF_LIMITS(T, MIN, MAX, LOWEST, INTEGER)                                   \
  template <> struct numeric_limits<T> {                                          \
    static constexpr bool is_specialized = true, is_integer = INTEGER;            \
    static constexpr bool is_signed = T(-1) < T(0);                               \
    static KFC T min() { return MIN; }                                            \
    static KFC T max() { return MAX; }                                            \
    static KFC T lowest() { return LOWEST; }                                      \
    static KFC T infinity() { return INTEGER ? T(0) : T(__builtin_inff()); }      \
    static KFC T quiet_NaN() { return INTEGER ? T(0) : T(__builtin_nanf("")); }   \
    static KFC T epsilon() { return T(kf_epsilon); }                              \
    static constexpr float kf_epsilon = INTEGER ? 0.0f                            \
        : sizeof(T) == 4 ? 1.1920929e-7f : is_same_v<T, half> ? 9.765625e-4f : 7.8125e-3f; \
    static constexpr int digits = INTEGER ? int(8 * sizeof(T)) - is_signed        \
        : sizeof(T) == 4 ? 24 : is_same_v<T, half> ? 11 : 8;                      \
  }
KF_LIMITS(bool, false, true, false, true);
KF_LIMITS(char, -128, 127, -128, true);
typedef signed char kf_signed_char;
KF_LIMITS(kf_signed_char, -128, 127, -128, true);
KF_LIMITS(uchar, 0, 255, 0, true);
KF_LIMITS(short, -32768, 32767, -32768, true);
KF_LIMITS(ushort, 0, 65535, 0, true);
KF_LIMITS(int, -2147483647 - 1, 2147483647, -2147483647 - 1, true);
KF_LIMITS(uint, 0, 4294967295u, 0, true);
KF_LIMITS(long, -9223372036854775807L - 1, 9223372036854775807L, -9223372036854775807L - 1, true);
KF_LIMITS(ulong, 0, 18446744073709551615UL, 0, true);
KF_LIMITS(float, 1.17549435e-38f, 3.40282347e+38f, -3.40282347e+38f, false);
KF_LIMITS(half, half(6.103515625e-5f), half(65504.0f), half(-65504.0f), false);
KF_LIMITS(bfloat, bfloat(1.17549435e-38f), bfloat(3.38953139e+38f), bfloat(-3.38953139e+38f), false);
#undef KF_LIMITS

template <class T, size_t N> struct array {
  T kf_items[N];
  template <class I> constexpr T& operator[](I i) { return kf_items[i]; }
  template <class I> constexpr const T& operator[](I i) const { return kf_items[i]; }
  constexpr size_t size() const { return N; }
};
}  // namespace metal

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define HUGE_VALH half(__builtin_inff())
#define MAXFLOAT 3.40282347e+38f
#define FLT_MAX 3.40282347e+38f
#define FLT_MIN 1.17549435e-38f
#define FLT_EPSILON 1.1920929e-7f
#define HALF_MAX half(65504.0f)
#define HALF_MIN half(6.103515625e-5f)
#define HALF_EPSILON half(9.765625e-4f)
#define MAXHALF half(65504.0f)
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-9223372036854775807L - 1)
#define ULONG_MAX 18446744073709551615UL
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_PI_H half(M_PI_F)
#define M_E_H half(M_E_F)
#define M_SQRT2_H half(M_SQRT2_F)
