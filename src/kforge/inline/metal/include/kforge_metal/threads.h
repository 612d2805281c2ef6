// What threads of a group do together: barriers, simdgroup and quadgroup functions, atomics, threadgroup memory.
#pragma once
#include "vector.h"

extern "C" {
// Defined by the emulator's runtime.
void kf_group_barrier(unsigned flags, unsigned line) __attribute__((noduplicate, convergent));
void kf_simd_barrier(unsigned flags, unsigned line) __attribute__((noduplicate, convergent));
// Hands in a value of at most 64 bytes; the result has one value a lane, and is valid until the thread's next wait.
const void* kf_exchange(const void* value, unsigned size, unsigned line, unsigned* active);
void kf_matrix_multiply(const void* mine, float* result, unsigned line);
unsigned kf_lane();
void kf_atomic_begin(const volatile void* address, unsigned size, int write);
void kf_atomic_end();
void kf_device_fence();
void* kf_threadgroup_array(const void* key, unsigned long size, unsigned granule, const char* name, unsigned line);
}

namespace metal {
enum class mem_flags : unsigned { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8, mem_object_data = 16 };
KFC mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(unsigned(a) | unsigned(b)); }
KFC mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(unsigned(a) & unsigned(b)); }
enum memory_order { memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };
KF void threadgroup_barrier(mem_flags flags, KF_LINE) { kf_group_barrier(unsigned(flags), kf_line); }
KF void threadgroup_barrier(mem_flags flags, thread_scope, KF_LINE) { kf_group_barrier(unsigned(flags), kf_line); }
KF void simdgroup_barrier(mem_flags flags, KF_LINE) { kf_simd_barrier(unsigned(flags), kf_line); }
KF void atomic_thread_fence(mem_flags, memory_order, thread_scope scope = thread_scope_device) { if (scope == thread_scope_device) kf_device_fence(); }

template <class T> struct kf_lanes {
  T values[32];
  unsigned active;
  unsigned lane;
  KF bool has(unsigned i) const { return i < 32 && (active >> i & 1); }
  // The value of a lane that takes no part is undefined; all bits set makes that visible.
  KF T get(unsigned i) const {
    if (has(i)) return values[i];
    T nothing;
    __builtin_memset(&nothing, 0xff, sizeof(T));
    return nothing;
  }
};
template <class T> KF kf_lanes<T> kf_gather(T value, unsigned line) {
  static_assert(sizeof(T) <= 64, "the value of a simdgroup function is too large");
  kf_lanes<T> all;
  const T* given = static_cast<const T*>(kf_exchange(&value, sizeof(T), line, &all.active));
  for (unsigned i = 0; i < 32; ++i) if (all.active >> i & 1) all.values[i] = given[i];
  all.lane = kf_lane();
  return all;
}
// FIRST to END are the lanes of the group: the simdgroup, or the quad of the thread.
template <class T, class F> KF T kf_fold(const kf_lanes<T>& all, unsigned first, unsigned end, T start, bool any, F f) {
  T result = start;
  for (unsigned i = first; i < end; ++i) if (all.has(i)) { result = any ? f(result, all.values[i]) : all.values[i]; any = true; }
  return result;
}
#define KF_FIRST_simd 0
#define KF_END_simd 32
#define KF_FIRST_quad (all.lane & ~3u)
#define KF_END_quad ((all.lane & ~3u) + 4)
#define KF_REDUCE(GROUP, NAME, EXPRESSION)                                                                       \
  template <class T> KF T GROUP##_##NAME(T value, KF_LINE) {                                                     \
    auto all = kf_gather(value, kf_line);                                                                        \
    return kf_fold(all, KF_FIRST_##GROUP, KF_END_##GROUP, value, false, [](T a, T b) { return T(EXPRESSION); }); \
  }
#define KF_SCAN(GROUP, NAME, UNIT, EXPRESSION)                                                                           \
  template <class T> KF T GROUP##_prefix_inclusive_##NAME(T value, KF_LINE) {                                            \
    auto all = kf_gather(value, kf_line);                                                                                \
    return kf_fold(all, KF_FIRST_##GROUP, all.lane + 1, T(UNIT), true, [](T a, T b) { return T(EXPRESSION); });          \
  }                                                                                                                      \
  template <class T> KF T GROUP##_prefix_exclusive_##NAME(T value, KF_LINE) {                                            \
    auto all = kf_gather(value, kf_line);                                                                                \
    return kf_fold(all, KF_FIRST_##GROUP, all.lane, T(UNIT), true, [](T a, T b) { return T(EXPRESSION); });              \
  }
template <class T> KF T kf_greater(T a, T b) { if constexpr (kf_is_vector<T>) { for (int i = 0; i < kf_size<T>; ++i) if (a[i] < b[i]) a[i] = b[i]; return a; } else { return a < b ? b : a; } }
template <class T> KF T kf_lesser(T a, T b) { if constexpr (kf_is_vector<T>) { for (int i = 0; i < kf_size<T>; ++i) if (b[i] < a[i]) a[i] = b[i]; return a; } else { return b < a ? b : a; } }

// The SIZE lanes from FIRST on; a lane outside keeps its own value where the specification says so.
#define KF_GROUP(GROUP, LANES)                                                                                           \
  KF_REDUCE(GROUP, sum, a + b)                                                                                           \
  KF_REDUCE(GROUP, product, a * b)                                                                                       \
  KF_REDUCE(GROUP, max, kf_greater(a, b))                                                                                \
  KF_REDUCE(GROUP, min, kf_lesser(a, b))                                                                                 \
  KF_REDUCE(GROUP, and, a & b)                                                                                           \
  KF_REDUCE(GROUP, or, a | b)                                                                                            \
  KF_REDUCE(GROUP, xor, a ^ b)                                                                                           \
  KF_SCAN(GROUP, sum, 0, a + b)                                                                                          \
  KF_SCAN(GROUP, product, 1, a * b)                                                                                      \
  template <class T> KF T GROUP##_shuffle(T value, ushort lane, KF_LINE) {                                               \
    auto all = kf_gather(value, kf_line);                                                                                \
    return all.get(KF_FIRST_##GROUP + lane % LANES);                                                                     \
  }                                                                                                                      \
  template <class T> KF T GROUP##_broadcast(T value, ushort lane, KF_LINE) { return GROUP##_shuffle(value, lane, kf_line); } \
  template <class T> KF T GROUP##_broadcast_first(T value, KF_LINE) {                                                    \
    auto all = kf_gather(value, kf_line);                                                                                \
    unsigned i = KF_FIRST_##GROUP;                                                                                       \
    while (!all.has(i)) ++i;                                                                                             \
    return all.values[i];                                                                                                \
  }                                                                                                                      \
  template <class T> KF T GROUP##_shuffle_xor(T value, ushort mask, KF_LINE) {                                           \
    auto all = kf_gather(value, kf_line);                                                                                \
    return all.get(KF_FIRST_##GROUP + ((all.lane ^ mask) % LANES));                                                      \
  }                                                                                                                      \
  template <class T> KF T GROUP##_shuffle_down(T value, ushort delta, KF_LINE) {                                         \
    auto all = kf_gather(value, kf_line);                                                                                \
    return all.lane % LANES + delta < LANES ? all.get(all.lane + delta) : value;                                         \
  }                                                                                                                      \
  template <class T> KF T GROUP##_shuffle_up(T value, ushort delta, KF_LINE) {                                           \
    auto all = kf_gather(value, kf_line);                                                                                \
    return all.lane % LANES >= delta ? all.get(all.lane - delta) : value;                                                \
  }                                                                                                                      \
  template <class T> KF T GROUP##_shuffle_rotate_down(T value, ushort delta, KF_LINE) {                                  \
    auto all = kf_gather(value, kf_line);                                                                                \
    return all.get(KF_FIRST_##GROUP + (all.lane % LANES + delta) % LANES);                                               \
  }                                                                                                                      \
  template <class T> KF T GROUP##_shuffle_rotate_up(T value, ushort delta, KF_LINE) {                                    \
    auto all = kf_gather(value, kf_line);                                                                                \
    return all.get(KF_FIRST_##GROUP + (all.lane % LANES + LANES - delta % LANES) % LANES);                               \
  }                                                                                                                      \
  template <class T> KF T GROUP##_shuffle_and_fill_down(T value, T filling, ushort delta, KF_LINE) {                     \
    auto all = kf_gather(value, kf_line);                                                                                \
    auto fill = kf_gather(filling, kf_line);                                                                             \
    unsigned at = all.lane % LANES + delta;                                                                              \
    return at < LANES ? all.get(KF_FIRST_##GROUP + at) : fill.get(KF_FIRST_##GROUP + at - LANES);                        \
  }                                                                                                                      \
  template <class T> KF T GROUP##_shuffle_and_fill_up(T value, T filling, ushort delta, KF_LINE) {                       \
    auto all = kf_gather(value, kf_line);                                                                                \
    auto fill = kf_gather(filling, kf_line);                                                                             \
    unsigned at = all.lane % LANES;                                                                                      \
    return at >= delta ? all.get(KF_FIRST_##GROUP + at - delta) : fill.get(KF_FIRST_##GROUP + LANES + at - delta);       \
  }                                                                                                                      \
  KF bool GROUP##_any(bool value, KF_LINE) { return GROUP##_or(int(value), kf_line) != 0; }                              \
  KF bool GROUP##_all(bool value, KF_LINE) { return GROUP##_and(int(value), kf_line) != 0; }                             \
  KF bool GROUP##_is_first(KF_LINE) {                                                                                    \
    auto all = kf_gather(0, kf_line);                                                                                    \
    unsigned i = KF_FIRST_##GROUP;                                                                                       \
    while (!all.has(i)) ++i;                                                                                             \
    return all.lane == i;                                                                                                \
  }
KF_GROUP(simd, 32)
KF_GROUP(quad, 4)
#undef KF_GROUP
#undef KF_REDUCE
#undef KF_SCAN

struct simd_vote {
  typedef ulong vote_t;
  vote_t kf_bits;
  explicit KFC simd_vote(vote_t bits = 0) : kf_bits(bits) {}
  explicit KFC operator vote_t() const { return kf_bits; }
  KFC bool all() const { return kf_bits == 0xffffffffu; }
  KFC bool any() const { return kf_bits != 0; }
};
KF simd_vote simd_ballot(bool value, KF_LINE) {
  auto all = kf_gather(int(value), kf_line);
  ulong bits = 0;
  for (unsigned i = 0; i < 32; ++i) if (all.has(i) && all.values[i]) bits |= 1ul << i;
  return simd_vote(bits);
}
KF simd_vote simd_active_threads_mask(KF_LINE) { return simd_ballot(true, kf_line); }
KF ushort quad_ballot(bool value, KF_LINE) {
  auto all = kf_gather(int(value), kf_line);
  ushort bits = 0;
  for (unsigned i = 0; i < 4; ++i) if (all.has((all.lane & ~3u) + i) && all.values[(all.lane & ~3u) + i]) bits |= 1 << i;
  return bits;
}

template <class T> struct atomic {
  T kf_value;
  atomic() = default;
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<ulong> atomic_ulong;
template <class P> struct kf_atomic_type;
template <class T> struct kf_atomic_type<atomic<T>> { typedef T type; };
template <class T> struct kf_atomic_type<volatile atomic<T>> { typedef T type; };
template <class T> struct kf_atomic_type<const atomic<T>> { typedef T type; };
template <class T> struct kf_atomic_type<const volatile atomic<T>> { typedef T type; };
#ifdef KF_CHECK_ADDRESS_SPACES
template <class T> struct kf_atomic_type<KF_DEVICE atomic<T>> { typedef T type; };
template <class T> struct kf_atomic_type<volatile KF_DEVICE atomic<T>> { typedef T type; };
template <class T> struct kf_atomic_type<KF_THREADGROUP atomic<T>> { typedef T type; };
template <class T> struct kf_atomic_type<volatile KF_THREADGROUP atomic<T>> { typedef T type; };
#endif
template <class P> using kf_atomic_value = typename kf_atomic_type<P>::type;

// One thread of a group runs at a time, and a lock of the runtime keeps groups apart: plain code between begin and end.
template <class P, class F> KF kf_atomic_value<P> kf_atomic_update(P* p, F f) {
  typedef kf_atomic_value<P> T;
  kf_atomic_begin((const volatile void*)p, sizeof(T), 1);
  T old;
  __builtin_memcpy_inline(&old, (const void*)&p->kf_value, sizeof(T));
  T now = f(old);
  __builtin_memcpy_inline((void*)&p->kf_value, &now, sizeof(T));
  kf_atomic_end();
  return old;
}
template <class P> KF kf_atomic_value<P> atomic_load_explicit(P* p, memory_order) {
  kf_atomic_value<P> value;
  kf_atomic_begin((const volatile void*)p, sizeof(value), 0);
  __builtin_memcpy_inline(&value, (const void*)&p->kf_value, sizeof(value));
  kf_atomic_end();
  return value;
}
template <class P> KF void atomic_store_explicit(P* p, kf_atomic_value<P> v, memory_order) {
  kf_atomic_update(p, [=](kf_atomic_value<P>) { return v; });
}
template <class P> KF kf_atomic_value<P> atomic_exchange_explicit(P* p, kf_atomic_value<P> v, memory_order) {
  return kf_atomic_update(p, [=](kf_atomic_value<P>) { return v; });
}
#define KF_ATOMIC(NAME, EXPRESSION, ...)                                                                                \
  template <class P> KF kf_atomic_value<P> atomic_fetch_##NAME##_explicit(P* p, kf_atomic_value<P> b, memory_order) {   \
    typedef kf_atomic_value<P> T;                                                                                       \
    __VA_ARGS__                                                                                                         \
    return kf_atomic_update(p, [=](T a) { return T(EXPRESSION); });                                                     \
  }
#define KF_INTEGERS_ONLY static_assert(is_integral_v<T>, "this atomic function has no version for floating point");
KF_ATOMIC(add, a + b)
KF_ATOMIC(sub, a - b)
KF_ATOMIC(max, a < b ? b : a, KF_INTEGERS_ONLY)
KF_ATOMIC(min, b < a ? b : a, KF_INTEGERS_ONLY)
KF_ATOMIC(and, a & b, KF_INTEGERS_ONLY)
KF_ATOMIC(or, a | b, KF_INTEGERS_ONLY)
KF_ATOMIC(xor, a ^ b, KF_INTEGERS_ONLY)
#undef KF_ATOMIC
template <class P, class Q> KF bool atomic_compare_exchange_weak_explicit(
    P* p, Q* expected, kf_atomic_value<P> desired, memory_order, memory_order) {
  typedef kf_atomic_value<P> T;
  T wanted = *expected;
  T old = kf_atomic_update(p, [=](T a) { return __builtin_memcmp(&a, &wanted, sizeof(T)) == 0 ? desired : a; });
  bool same = __builtin_memcmp(&old, &wanted, sizeof(T)) == 0;
  if (!same) *expected = old;
  return same;
}
// The bytes of which it is known who wrote them: a scalar, or a piece of a structure.
template <class T> constexpr unsigned kf_granule = kf_is_scalar<T> ? sizeof(T) : alignof(T) < 4 ? alignof(T) : 4;
template <class T> constexpr unsigned kf_granule<atomic<T>> = sizeof(T);
template <class T, int N> constexpr unsigned kf_granule<vec<T, N>> = sizeof(T);
template <class T, int N> constexpr unsigned kf_granule<packed_vec<T, N>> = sizeof(T);
template <class T> constexpr unsigned kf_granule<T[]> = kf_granule<T>;
template <class T, size_t N> constexpr unsigned kf_granule<T[N]> = kf_granule<T>;
}  // namespace metal
