#include <cmath>
#include <cstdint>
#include <cstring>

// exp(x) = 2^k exp(r) with r in [-ln 2 / 2, ln 2 / 2]: a polynomial, and k put into the exponent bits.
static inline float exp_of(float x) {
    const float inside = x < -86.6f ? -86.6f : x > 89.0f ? 89.0f : x;
    const float k = (inside * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = (inside - k * 0.693359375f) + k * 2.12194440e-4f;
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
    return x < -86.6f ? 0.0f : p * power * 2.0f;
}

static inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }

extern "C" void k(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    #pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = sigmoid_of(x[i]);
}