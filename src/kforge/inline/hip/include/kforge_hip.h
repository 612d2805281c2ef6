// What HIP's runtime compiler brings by itself, as far as kernels commonly use it: for a check of a source by a plain
// clang, without ROCm. Functions of the device library are declared only; nothing is linked.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef _Float16 __half;
typedef unsigned int uint;

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define KFORGE_VECTORS(T, U) \
    typedef T U##2 __attribute__((ext_vector_type(2))); \
    typedef T U##4 __attribute__((ext_vector_type(4))); \
    __device__ inline U##2 make_##U##2(T x, T y) { return U##2{x, y}; } \
    __device__ inline U##4 make_##U##4(T x, T y, T z, T w) { return U##4{x, y, z, w}; }
KFORGE_VECTORS(float, float)
KFORGE_VECTORS(int, int)
KFORGE_VECTORS(unsigned, uint)
KFORGE_VECTORS(double, double)

#define KFORGE_INDEX(NAME, X, Y, Z) \
    struct kforge_##NAME { \
        __declspec(property(get = get_x)) unsigned x; \
        __declspec(property(get = get_y)) unsigned y; \
        __declspec(property(get = get_z)) unsigned z; \
        __device__ unsigned get_x() const { return X; } \
        __device__ unsigned get_y() const { return Y; } \
        __device__ unsigned get_z() const { return Z; } \
    }; \
    extern const __device__ __attribute__((weak)) kforge_##NAME NAME;
KFORGE_INDEX(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z())
KFORGE_INDEX(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z())
KFORGE_INDEX(blockDim, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z())
KFORGE_INDEX(
    gridDim, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
    __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
    __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())

static constexpr int warpSize = __AMDGCN_WAVEFRONT_SIZE;

__device__ inline void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
__device__ inline unsigned kforge_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }

__device__ inline int __shfl(int value, int lane, int width = warpSize) {
    int self = kforge_lane();
    return __builtin_amdgcn_ds_bpermute((self & ~(width - 1) | lane & (width - 1)) << 2, value);
}
__device__ inline float __shfl(float value, int lane, int width = warpSize) {
    return __builtin_bit_cast(float, __shfl(__builtin_bit_cast(int, value), lane, width));
}
#define KFORGE_SHUFFLE(NAME, LANE) \
    template <typename T> __device__ inline T NAME(T value, int step, int width = warpSize) { \
        int self = kforge_lane(); \
        return __shfl(value, LANE, width); \
    } \
    template <typename T> __device__ inline T NAME##_sync(uint64_t, T value, int step, int width = warpSize) { \
        return NAME(value, step, width); \
    }
KFORGE_SHUFFLE(__shfl_xor, self ^ step)
KFORGE_SHUFFLE(__shfl_down, (self & (width - 1)) + step < width ? self + step : self)
KFORGE_SHUFFLE(__shfl_up, (self & (width - 1)) >= step ? self - step : self)

template <typename T> __device__ inline T atomicAdd(T* at, T value) {
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> __device__ inline T atomicMax(T* at, T value) {
    return __hip_atomic_fetch_max(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> __device__ inline T atomicMin(T* at, T value) {
    return __hip_atomic_fetch_min(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> __device__ inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> __device__ inline T max(T a, T b) { return a < b ? b : a; }
__device__ inline float __half2float(__half value) { return value; }
__device__ inline __half __float2half(float value) { return value; }

#define KFORGE_ONE(NAME) \
    extern "C" __device__ float __ocml_##NAME##_f32(float); \
    extern "C" __device__ double __ocml_##NAME##_f64(double); \
    __device__ inline float NAME##f(float x) { return __ocml_##NAME##_f32(x); } \
    __device__ inline float NAME(float x) { return __ocml_##NAME##_f32(x); } \
    __device__ inline double NAME(double x) { return __ocml_##NAME##_f64(x); }
#define KFORGE_TWO(NAME) \
    extern "C" __device__ float __ocml_##NAME##_f32(float, float); \
    extern "C" __device__ double __ocml_##NAME##_f64(double, double); \
    __device__ inline float NAME##f(float x, float y) { return __ocml_##NAME##_f32(x, y); } \
    __device__ inline float NAME(float x, float y) { return __ocml_##NAME##_f32(x, y); } \
    __device__ inline double NAME(double x, double y) { return __ocml_##NAME##_f64(x, y); }
KFORGE_ONE(exp) KFORGE_ONE(exp2) KFORGE_ONE(expm1) KFORGE_ONE(log) KFORGE_ONE(log2) KFORGE_ONE(log10) KFORGE_ONE(log1p)
KFORGE_ONE(sqrt) KFORGE_ONE(rsqrt) KFORGE_ONE(cbrt) KFORGE_ONE(sin) KFORGE_ONE(cos) KFORGE_ONE(tan) KFORGE_ONE(asin)
KFORGE_ONE(acos) KFORGE_ONE(atan) KFORGE_ONE(sinh) KFORGE_ONE(cosh) KFORGE_ONE(tanh) KFORGE_ONE(asinh) KFORGE_ONE(acosh)
KFORGE_ONE(atanh) KFORGE_ONE(erf) KFORGE_ONE(erfc) KFORGE_ONE(floor) KFORGE_ONE(ceil) KFORGE_ONE(trunc) KFORGE_ONE(rint)
KFORGE_ONE(round) KFORGE_ONE(fabs) KFORGE_ONE(lgamma) KFORGE_ONE(tgamma)
KFORGE_TWO(pow) KFORGE_TWO(fmod) KFORGE_TWO(fmax) KFORGE_TWO(fmin) KFORGE_TWO(atan2) KFORGE_TWO(copysign)
KFORGE_TWO(remainder) KFORGE_TWO(hypot)
__device__ inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
__device__ inline bool isnan(float x) { return __builtin_isnan(x); }
__device__ inline bool isinf(float x) { return __builtin_isinf(x); }
__device__ inline bool isfinite(float x) { return __builtin_isfinite(x); }
