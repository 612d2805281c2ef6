// Matrices of columns (float4x4 and its like), and simdgroup_matrix: an 8x8 matrix that 32 threads hold together.
#pragma once
#include "math.h"
#include "threads.h"

namespace metal {
template <class T, int C, int R> struct matrix {
  vec<T, R> columns[C];
  matrix() = default;
  explicit KF matrix(T diagonal) {
    for (int c = 0; c < C; ++c) {
      columns[c] = vec<T, R>(T(0));
      if (c < R) columns[c][c] = diagonal;
    }
  }
  template <class... A, class = enable_if_t<sizeof...(A) == C && (C > 1) && (... && kf_is_vector<A>)>> KF matrix(A... a) : columns{a...} {}
  template <class I> KF vec<T, R>& operator[](I i) { return columns[i]; }
  template <class I> KF const vec<T, R>& operator[](I i) const { return columns[i]; }
};
template <class T, int C, int R> KF vec<T, R> operator*(const matrix<T, C, R>& m, vec<T, C> v) {
  vec<T, R> r(T(0));
  for (int c = 0; c < C; ++c) r += m[c] * v[c];
  return r;
}
template <class T, int C, int R> KF vec<T, C> operator*(vec<T, R> v, const matrix<T, C, R>& m) {
  vec<T, C> r(T(0));
  for (int c = 0; c < C; ++c) r[c] = dot(v, m[c]);
  return r;
}
template <class T, int K, int R, int C> KF matrix<T, C, R> operator*(const matrix<T, K, R>& a, const matrix<T, C, K>& b) {
  matrix<T, C, R> r;
  for (int c = 0; c < C; ++c) r[c] = a * b[c];
  return r;
}
template <class T, int C, int R> KF matrix<T, C, R> operator*(matrix<T, C, R> m, T s) { for (int c = 0; c < C; ++c) m[c] *= s; return m; }
template <class T, int C, int R> KF matrix<T, C, R> operator*(T s, matrix<T, C, R> m) { return m * s; }
template <class T, int C, int R> KF matrix<T, C, R> operator+(matrix<T, C, R> a, const matrix<T, C, R>& b) { for (int c = 0; c < C; ++c) a[c] += b[c]; return a; }
template <class T, int C, int R> KF matrix<T, C, R> operator-(matrix<T, C, R> a, const matrix<T, C, R>& b) { for (int c = 0; c < C; ++c) a[c] -= b[c]; return a; }
template <class T, int C, int R> KF matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
  matrix<T, R, C> r;
  for (int i = 0; i < R; ++i) for (int c = 0; c < C; ++c) r[i][c] = m[c][i];
  return r;
}
template <class T> KF T determinant(const matrix<T, 2, 2>& m) { return m[0][0] * m[1][1] - m[1][0] * m[0][1]; }
template <class T> KF T determinant(const matrix<T, 3, 3>& m) { return dot(m[0], cross(m[1], m[2])); }

template <class T, int C, int R> struct simdgroup_matrix {
  static_assert(C == 8 && R == 8, "Metal has simdgroup matrices of 8 by 8 only");
  static_assert(kf_is_float<T>, "Metal has simdgroup matrices of float, half and bfloat only");
  vec<T, 2> kf_elements;
  simdgroup_matrix() = default;
  explicit KF simdgroup_matrix(T diagonal) {
    kf_elements = vec<T, 2>(kf_row() == kf_column() ? diagonal : T(0), kf_row() == kf_column() + 1 ? diagonal : T(0));
  }
  KF vec<T, 2>& thread_elements() { return kf_elements; }
  KF const vec<T, 2>& thread_elements() const { return kf_elements; }
  // Where the two elements of a thread lie: this is how the hardware spreads them.
  static KF int kf_row() { uint lane = kf_lane(); return int(((lane / 4) & 4) + (lane / 2) % 4); }
  static KF int kf_column() { uint lane = kf_lane(); return int(((lane / 4) & 2) * 2 + (lane % 2) * 2); }
};
template <class T, int C, int R> KF simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.kf_elements = vec<T, 2>(value);
  return m;
}
template <class M, class P> KF long kf_matrix_offset(P stride, ulong2 origin, bool transposed, int i) {
  long row = M::kf_row(), column = M::kf_column() + i;
  if (transposed) { long swap = row; row = column; column = swap; }
  return (row + long(origin.y)) * long(stride) + column + long(origin.x);
}
template <class T, int C, int R, class P> KF void simdgroup_load(
    simdgroup_matrix<T, C, R>& m, P* source, ulong elements_per_row = C, ulong2 origin = ulong2(0), bool transpose = false) {
  typedef simdgroup_matrix<T, C, R> M;
  for (int i = 0; i < 2; ++i) m.kf_elements[i] = source[kf_matrix_offset<M>(elements_per_row, origin, transpose, i)];
}
template <class T, int C, int R, class P> KF void simdgroup_store(
    const simdgroup_matrix<T, C, R>& m, P* target, ulong elements_per_row = C, ulong2 origin = ulong2(0), bool transpose = false) {
  typedef simdgroup_matrix<T, C, R> M;
  for (int i = 0; i < 2; ++i) target[kf_matrix_offset<M>(elements_per_row, origin, transpose, i)] = m.kf_elements[i];
}
template <class D, class A, class B, class Z> KF void kf_matrix_product(
    simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b,
    const simdgroup_matrix<Z, 8, 8>& c, unsigned kf_line) {
  struct { float a[2], b[2]; } mine = {{float(a.kf_elements[0]), float(a.kf_elements[1])}, {float(b.kf_elements[0]), float(b.kf_elements[1])}};
  float result[2];
  kf_matrix_multiply(&mine, result, kf_line);
  for (int i = 0; i < 2; ++i) d.kf_elements[i] = D(result[i] + float(c.kf_elements[i]));
}
template <class D, class A, class B> KF void simdgroup_multiply(
    simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b, KF_LINE) {
  simdgroup_matrix<D, 8, 8> zero;
  zero.kf_elements = vec<D, 2>(D(0));
  kf_matrix_product(d, a, b, zero, kf_line);
}
template <class D, class A, class B, class Z> KF void simdgroup_multiply_accumulate(
    simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b,
    const simdgroup_matrix<Z, 8, 8>& c, KF_LINE) {
  kf_matrix_product(d, a, b, c, kf_line);
}
template <class T> KF simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a, const simdgroup_matrix<T, 8, 8>& b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
}  // namespace metal

#define KF_MATRIX_NAMES(T)                                                                                          \
  typedef metal::matrix<T, 2, 2> T##2x2; typedef metal::matrix<T, 2, 3> T##2x3; typedef metal::matrix<T, 2, 4> T##2x4; \
  typedef metal::matrix<T, 3, 2> T##3x2; typedef metal::matrix<T, 3, 3> T##3x3; typedef metal::matrix<T, 3, 4> T##3x4; \
  typedef metal::matrix<T, 4, 2> T##4x2; typedef metal::matrix<T, 4, 3> T##4x3; typedef metal::matrix<T, 4, 4> T##4x4;
KF_MATRIX_NAMES(float)
KF_MATRIX_NAMES(half)
#undef KF_MATRIX_NAMES
