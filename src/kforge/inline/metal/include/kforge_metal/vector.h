// vec<T, N>: constructors, operators, swizzles. `v.xy` in a source becomes `v.template kf_get<0, 1>()`.
#pragma once
#include "scalar.h"

extern "C" void kf_index_fault(long index);

namespace metal {
// The index of a component, checked.
template <int N, class I> KFC I kf_component(I i) {
  if (i < I(0) || i >= I(N)) kf_index_fault(long(i));
  return i;
}
template <class T, int N> struct vec;
template <class T> struct kf_vector_traits { static constexpr int size = 1; typedef T element; };
template <class T, int N> struct kf_vector_traits<vec<T, N>> { static constexpr int size = N; typedef T element; };
template <class T> constexpr int kf_size = kf_vector_traits<remove_cv_t<T>>::size;
template <class T> using kf_element = typename kf_vector_traits<remove_cv_t<T>>::element;
template <class T> constexpr bool kf_is_vector = (kf_size<T> > 1);
template <class T> constexpr bool kf_is_scalar = is_arithmetic_v<T>;

// What `v.xy = ...` assigns to: the chosen components of a vector.
template <class T, int N, int... I> struct kf_selection {
  typedef vec<T, sizeof...(I)> value_type;
  vec<T, N>& kf_v;
  KF operator value_type() const { return value_type(kf_v[I]...); }
  KF kf_selection& operator=(value_type v) { int i = 0; ((kf_v[I] = v[i++]), ...); return *this; }
  KF kf_selection& operator=(const kf_selection& o) { return *this = value_type(o); }
  KF kf_selection& operator+=(value_type v) { return *this = value_type(*this) + v; }
  KF kf_selection& operator-=(value_type v) { return *this = value_type(*this) - v; }
  KF kf_selection& operator*=(value_type v) { return *this = value_type(*this) * v; }
  KF kf_selection& operator/=(value_type v) { return *this = value_type(*this) / v; }
};

template <class T> struct kf_vector_filler {
  T* to;
  template <class A> KFC void add(const A& a) {
    if constexpr (kf_is_vector<A>) {
      for (int i = 0; i < kf_size<A>; ++i) *to++ = T(a[i]);
    } else {
      *to++ = T(a);
    }
  }
};

#ifdef KF_CHECK_ADDRESS_SPACES
#define KF_VECTOR_SPACES(N)                                                                       \
  vec(const vec&) = default;                                                                      \
  vec& operator=(const vec&) = default;                                                           \
  vec(const KF_DEVICE vec& o) { for (int i = 0; i < N; ++i) (&x)[i] = (&o.x)[i]; }                \
  vec(const KF_CONSTANT vec& o) { for (int i = 0; i < N; ++i) (&x)[i] = (&o.x)[i]; }              \
  vec(const KF_THREADGROUP vec& o) { for (int i = 0; i < N; ++i) (&x)[i] = (&o.x)[i]; }
#else
#define KF_VECTOR_SPACES(N)
#endif

#define KF_VECTOR(N, ...)                                                                                   \
  template <class T> struct alignas((N == 2 ? 2 : 4) * sizeof(T)) vec<T, N> {                               \
    typedef T kf_element_type;                                                                              \
    __VA_ARGS__                                                                                             \
    vec() = default;                                                                                        \
    KF_VECTOR_SPACES(N)                                                                                     \
    template <class A, class = enable_if_t<kf_is_scalar<A>>> KFC vec(A a) : x(T(a)), KF_SPLAT_##N {}        \
    template <class U, class = enable_if_t<!is_same_v<U, T>>, class = void> KFC explicit vec(vec<U, N> v)   \
        : x(T(v.x)), KF_CONVERT_##N {}                                                                      \
    template <class A, class B, class... C,                                                                 \
              class = enable_if_t<kf_size<A> + kf_size<B> + (kf_size<C> + ... + 0) == N>>                   \
    KFC vec(A a, B b, C... c) : x(T(0)), KF_ZERO_##N {                                                      \
      T values[N] = {};                                                                                     \
      kf_vector_filler<T> filler{values};                                                                   \
      filler.add(a), filler.add(b), (filler.add(c), ...);                                                   \
      x = values[0], y = values[1] KF_REST_##N;                                                             \
    }                                                                                                       \
    template <class I> KFC T& operator[](I i) { return (&x)[kf_component<N>(i)]; }                          \
    template <class I> KFC const T& operator[](I i) const { return (&x)[kf_component<N>(i)]; }              \
    template <int... I> KFC vec<T, sizeof...(I)> kf_get() const {                                           \
      static_assert(((I < N) && ...), "the vector has no such component");                                  \
      return vec<T, sizeof...(I)>((&x)[I]...);                                                              \
    }                                                                                                       \
    template <int... I> KFC kf_selection<T, N, I...> kf_set() {                                             \
      static_assert(((I < N) && ...), "the vector has no such component");                                  \
      return {*this};                                                                                       \
    }                                                                                                       \
    KF_VECTOR_ASSIGN(+=, +)                                                                                 \
    KF_VECTOR_ASSIGN(-=, -)                                                                                 \
    KF_VECTOR_ASSIGN(*=, *)                                                                                 \
    KF_VECTOR_ASSIGN(/=, /)                                                                                 \
    KF_VECTOR_ASSIGN(%=, %)                                                                                 \
    KF_VECTOR_ASSIGN(&=, &)                                                                                 \
    KF_VECTOR_ASSIGN(|=, |)                                                                                 \
    KF_VECTOR_ASSIGN(^=, ^)                                                                                 \
    KF_VECTOR_ASSIGN(<<=, <<)                                                                               \
    KF_VECTOR_ASSIGN(>>=, >>)                                                                               \
    KF vec& operator++() { return *this += vec(T(1)); }                                                     \
    KF vec& operator--() { return *this -= vec(T(1)); }                                                     \
    KF vec operator++(int) { vec old = *this; *this += vec(T(1)); return old; }                             \
    KF vec operator--(int) { vec old = *this; *this -= vec(T(1)); return old; }                             \
  }
#define KF_VECTOR_ASSIGN(OP, PLAIN) template <class B> KFC vec& operator OP(B b) { return *this = *this PLAIN b; }
#define KF_SPLAT_2 y(T(a))
#define KF_SPLAT_3 KF_SPLAT_2, z(T(a))
#define KF_SPLAT_4 KF_SPLAT_3, w(T(a))
#define KF_CONVERT_2 y(T(v.y))
#define KF_CONVERT_3 KF_CONVERT_2, z(T(v.z))
#define KF_CONVERT_4 KF_CONVERT_3, w(T(v.w))
#define KF_ZERO_2 y(T(0))
#define KF_ZERO_3 KF_ZERO_2, z(T(0))
#define KF_ZERO_4 KF_ZERO_3, w(T(0))
#define KF_REST_2
#define KF_REST_3 , z = values[2]
#define KF_REST_4 , z = values[2], w = values[3]
KF_VECTOR(2, union { T x; T r; }; union { T y; T g; };);
KF_VECTOR(3, union { T x; T r; }; union { T y; T g; }; union { T z; T b; };);
KF_VECTOR(4, union { T x; T r; }; union { T y; T g; }; union { T z; T b; }; union { T w; T a; };);

#define KF_VECTOR_BINARY(OP)                                                                                     \
  template <class T, int N> KFC vec<T, N> operator OP(vec<T, N> a, vec<T, N> b) {                                \
    vec<T, N> r(T(0));                                                                                           \
    for (int i = 0; i < N; ++i) (&r.x)[i] = T((&a.x)[i] OP(&b.x)[i]);                                            \
    return r;                                                                                                    \
  }                                                                                                              \
  template <class T, int N, class S, class = enable_if_t<kf_is_scalar<S>>>                                       \
  KFC vec<T, N> operator OP(vec<T, N> a, S s) { return a OP vec<T, N>(s); }                                      \
  template <class T, int N, class S, class = enable_if_t<kf_is_scalar<S>>>                                       \
  KFC vec<T, N> operator OP(S s, vec<T, N> b) { return vec<T, N>(s) OP b; }
KF_VECTOR_BINARY(+)
KF_VECTOR_BINARY(-)
KF_VECTOR_BINARY(*)
KF_VECTOR_BINARY(/)
KF_VECTOR_BINARY(%)
KF_VECTOR_BINARY(&)
KF_VECTOR_BINARY(|)
KF_VECTOR_BINARY(^)
KF_VECTOR_BINARY(<<)
KF_VECTOR_BINARY(>>)
#undef KF_VECTOR_BINARY

#define KF_VECTOR_COMPARE(OP)                                                                                    \
  template <class T, int N> KFC vec<bool, N> operator OP(vec<T, N> a, vec<T, N> b) {                             \
    vec<bool, N> r(false);                                                                                       \
    for (int i = 0; i < N; ++i) (&r.x)[i] = (&a.x)[i] OP(&b.x)[i];                                               \
    return r;                                                                                                    \
  }                                                                                                              \
  template <class T, int N, class S, class = enable_if_t<kf_is_scalar<S>>>                                       \
  KFC vec<bool, N> operator OP(vec<T, N> a, S s) { return a OP vec<T, N>(s); }                                   \
  template <class T, int N, class S, class = enable_if_t<kf_is_scalar<S>>>                                       \
  KFC vec<bool, N> operator OP(S s, vec<T, N> b) { return vec<T, N>(s) OP b; }
KF_VECTOR_COMPARE(==)
KF_VECTOR_COMPARE(!=)
KF_VECTOR_COMPARE(<)
KF_VECTOR_COMPARE(>)
KF_VECTOR_COMPARE(<=)
KF_VECTOR_COMPARE(>=)
KF_VECTOR_COMPARE(&&)
KF_VECTOR_COMPARE(||)
#undef KF_VECTOR_COMPARE

template <class F, class T, int N> KFC auto kf_map(F f, vec<T, N> v) {
  vec<decltype(f(v.x)), N> r(decltype(f(v.x))(0));
  for (int i = 0; i < N; ++i) (&r.x)[i] = f((&v.x)[i]);
  return r;
}
template <class T, int N> KFC vec<T, N> operator-(vec<T, N> v) { return vec<T, N>(T(0)) - v; }
template <class T, int N> KFC vec<T, N> operator+(vec<T, N> v) { return v; }
template <class T, int N> KFC vec<T, N> operator~(vec<T, N> v) { return v ^ vec<T, N>(T(~T(0))); }
template <class T, int N> KFC vec<bool, N> operator!(vec<T, N> v) { return v == vec<T, N>(T(0)); }

// The layout without padding: packed_float3 has 12 bytes.
template <class T, int N> struct kf_packed_components;
template <class T> struct kf_packed_components<T, 2> { T x, y; };
template <class T> struct kf_packed_components<T, 3> { T x, y, z; };
template <class T> struct kf_packed_components<T, 4> { T x, y, z, w; };
template <class T, int N> struct packed_vec : kf_packed_components<T, N> {
  packed_vec() = default;
  KFC packed_vec(vec<T, N> v) { for (int i = 0; i < N; ++i) (&this->x)[i] = v[i]; }
  template <class... A, class = enable_if_t<(kf_size<A> + ... + 0) == N && (sizeof...(A) > 1)>>
  KFC packed_vec(A... a) : packed_vec(vec<T, N>(a...)) {}
  template <class A, class = enable_if_t<kf_is_scalar<A>>, class = void> KFC packed_vec(A a) : packed_vec(vec<T, N>(a)) {}
  KFC operator vec<T, N>() const { vec<T, N> v(T(0)); for (int i = 0; i < N; ++i) v[i] = (&this->x)[i]; return v; }
  template <class I> KFC T& operator[](I i) { return (&this->x)[i]; }
  template <class I> KFC const T& operator[](I i) const { return (&this->x)[i]; }
  template <int... I> KFC vec<T, sizeof...(I)> kf_get() const { return vec<T, sizeof...(I)>((&this->x)[I]...); }
};
#define KF_PACKED_BINARY(OP)                                                                                             \
  template <class T, int N> KFC vec<T, N> operator OP(packed_vec<T, N> a, packed_vec<T, N> b) { return vec<T, N>(a) OP vec<T, N>(b); } \
  template <class T, int N> KFC vec<T, N> operator OP(packed_vec<T, N> a, vec<T, N> b) { return vec<T, N>(a) OP b; }         \
  template <class T, int N> KFC vec<T, N> operator OP(vec<T, N> a, packed_vec<T, N> b) { return a OP vec<T, N>(b); }         \
  template <class T, int N, class S, class = enable_if_t<kf_is_scalar<S>>>                                               \
  KFC vec<T, N> operator OP(packed_vec<T, N> a, S s) { return vec<T, N>(a) OP s; }
KF_PACKED_BINARY(+)
KF_PACKED_BINARY(-)
KF_PACKED_BINARY(*)
KF_PACKED_BINARY(/)
#undef KF_PACKED_BINARY

template <class To, class From> KFC enable_if_t<!is_pointer<To>::value, To> as_type(From from) { return kf_bits_as<To>(from); }
}  // namespace metal

#define KF_NAMES(T)                                                                                       \
  typedef metal::vec<T, 2> T##2; typedef metal::vec<T, 3> T##3; typedef metal::vec<T, 4> T##4;            \
  typedef metal::packed_vec<T, 2> packed_##T##2; typedef metal::packed_vec<T, 3> packed_##T##3;           \
  typedef metal::packed_vec<T, 4> packed_##T##4;                                                          \
  namespace metal { using ::T##2; using ::T##3; using ::T##4; }
KF_NAMES(bool)
KF_NAMES(char)
KF_NAMES(uchar)
KF_NAMES(short)
KF_NAMES(ushort)
KF_NAMES(int)
KF_NAMES(uint)
KF_NAMES(long)
KF_NAMES(ulong)
KF_NAMES(half)
KF_NAMES(bfloat)
KF_NAMES(float)
#undef KF_NAMES
