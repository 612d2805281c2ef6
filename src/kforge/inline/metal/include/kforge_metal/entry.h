// How a kernel is called by the runtime: conversions for its parameters, and a description of their types.
#pragma once
#include "matrix.h"

struct kf_thread {  // the runtime has the same
  unsigned grid[3], in_group[3], group[3], group_size[3], dispatch_size[3], grid_size[3], groups[3];
  unsigned index, lane, simd, simds, width, quad, quad_lane, quads;
};
struct kf_pointer_argument {
  void* kf_at;
  template <class T> KF operator T*() const { return (T*)kf_at; }
};
struct kf_reference_argument {
  void* kf_at;
  template <class T> KF operator T&() const { return *(T*)kf_at; }
};
// An attribute of three dimensions: the parameter takes one, two or three of them.
struct kf_triple_argument {
  const unsigned* kf_at;
  KF operator uint() const { return kf_at[0]; }
  KF operator ushort() const { return ushort(kf_at[0]); }
  KF operator uint2() const { return uint2(kf_at[0], kf_at[1]); }
  KF operator uint3() const { return uint3(kf_at[0], kf_at[1], kf_at[2]); }
  KF operator ushort2() const { return ushort2(kf_at[0], kf_at[1]); }
  KF operator ushort3() const { return ushort3(kf_at[0], kf_at[1], kf_at[2]); }
};
struct kf_single_argument {
  unsigned kf_value;
  KF operator uint() const { return kf_value; }
  KF operator ushort() const { return ushort(kf_value); }
};

template <class T> constexpr int kf_code = 13;  // a structure
template <> constexpr int kf_code<void> = 0;
template <> constexpr int kf_code<bool> = 1;
template <> constexpr int kf_code<char> = 2;
template <> constexpr int kf_code<signed char> = 2;
template <> constexpr int kf_code<uchar> = 3;
template <> constexpr int kf_code<short> = 4;
template <> constexpr int kf_code<ushort> = 5;
template <> constexpr int kf_code<int> = 6;
template <> constexpr int kf_code<uint> = 7;
template <> constexpr int kf_code<long> = 8;
template <> constexpr int kf_code<long long> = 8;
template <> constexpr int kf_code<ulong> = 9;
template <> constexpr int kf_code<unsigned long long> = 9;
template <> constexpr int kf_code<half> = 10;
template <> constexpr int kf_code<bfloat> = 11;
template <> constexpr int kf_code<float> = 12;
template <class T, int N> constexpr int kf_code<metal::vec<T, N>> = kf_code<T>;
template <class T, int N> constexpr int kf_code<metal::packed_vec<T, N>> = kf_code<T>;
template <class T> constexpr int kf_code<metal::atomic<T>> = kf_code<T>;
template <class T> constexpr int kf_sizeof = sizeof(T);
template <> constexpr int kf_sizeof<void> = 1;
template <class T> constexpr int kf_grain = metal::kf_granule<T>;
template <> constexpr int kf_grain<void> = 1;

// Five numbers a parameter: 0 value, 1 pointer, 2 reference; scalar type; bytes; bytes of a scalar; whether constant.
template <class T> struct kf_describe_one { static KF void to(int* out) { out[0] = 0; out[1] = kf_code<T>; out[2] = sizeof(T); out[3] = 1; out[4] = 1; } };
template <class T, int KIND> struct kf_describe_memory {
  static KF void to(int* out) {
    typedef metal::remove_cv_t<T> U;
    out[0] = KIND; out[1] = kf_code<U>; out[2] = kf_sizeof<U>; out[3] = kf_grain<U>; out[4] = !metal::is_same_v<T, U> && __is_const(T);
  }
};
template <class T> struct kf_describe_one<T*> : kf_describe_memory<T, 1> {};
template <class T> struct kf_describe_one<T* const> : kf_describe_memory<T, 1> {};
template <class T> struct kf_describe_one<T&> : kf_describe_memory<T, 2> {};
template <class... P> __attribute__((nodebug)) void kf_describe(void (*)(P...), int* out) { ((kf_describe_one<P>::to(out), out += 5), ...); }

template <class T> struct kf_function_constant_value { T value; bool defined; };
