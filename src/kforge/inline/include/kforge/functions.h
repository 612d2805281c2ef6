// The functions themselves, in the words that math.h and math.wgsl define. Only <kforge/math.h> includes this file.
//
// The polynomials are kforge's own minimax fits. A function that a language has itself is left out by KFORGE_HAS_...
// WGSL has none of them and no preprocessor: headers/wgsl.py leaves out lines that begin with #, and rewrites the heads of
// functions and declarations, each on one line. So a statement here is one that both languages have.

// Of a number and NaN it is either of them, as fast as the processor can; `maximum` and `minimum` keep NaN.
KFORGE_FUNCTION float KFORGE(larger)(float a, float b) { return KFORGE_LARGER(a, b); }
KFORGE_FUNCTION float KFORGE(smaller)(float a, float b) { return KFORGE_SMALLER(a, b); }

// As torch's maximum and minimum: NaN stays NaN.
KFORGE_FUNCTION float KFORGE(maximum)(float a, float b) { return KFORGE_CHOOSE((a < b) | KFORGE_IS_NAN(b), b, a); }
KFORGE_FUNCTION float KFORGE(minimum)(float a, float b) { return KFORGE_CHOOSE((a > b) | KFORGE_IS_NAN(b), b, a); }

#ifndef KFORGE_HAS_EXP
// exp(x) = 2^k exp(r) with r in [-ln 2 / 2, ln 2 / 2]: a polynomial, and k put into the exponent bits. Results below
// 2.5e-38 are zero.
KFORGE_FUNCTION float KFORGE(exp)(float x) {
    const float inside = KFORGE_SMALLER(KFORGE_LARGER(x, -86.6f), 89.0f);  // for NaN some number, which r is not
    const float k = KFORGE_ROUND(inside * 1.44269504f);
    const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.395605185e-3f;
    p = KFORGE_MAD(p, r, 8.375128581e-3f);
    p = KFORGE_MAD(p, r, 4.166608367e-2f);
    p = KFORGE_MAD(p, r, 1.666641548e-1f);
    p = KFORGE_MAD(p, r, 5.000000168e-1f);
    p = KFORGE_MAD(p, r, 1.000000038f);
    p = KFORGE_MAD(p, r, 1.0f);
    const float power = KFORGE_FROM_BITS((KFORGE_INT(k) + 126) << 23u);  // 2^(k - 1), since 2^128 is no number
    const float value = p * power * 2.0f;
    return KFORGE_EXP_ENDS(x, value);
}
#endif

#ifndef KFORGE_HAS_LOG
// log(x) = k ln 2 + log(m) with m in [sqrt(1/2), sqrt(2)].
KFORGE_FUNCTION float KFORGE(log)(float x) {
    const bool tiny = x < 1.17549435e-38f;
    const float grown = x * 8388608.0f;
    const float scaled = KFORGE_CHOOSE(tiny, grown, x);
    const float shift = KFORGE_CHOOSE(tiny, 23.0f, 0.0f);
    const int whole = KFORGE_BITS(scaled);
    const int k = (whole - 0x3f3504f3) >> 23u;
    const float f = KFORGE_FROM_BITS(whole - k * 8388608) - 1.0f;
    const float exponent = KFORGE_FLOAT(k) - shift;
    float p = -8.064553267e-2f;
    p = KFORGE_MAD(p, f, 1.291782159e-1f);
    p = KFORGE_MAD(p, f, -1.307256941e-1f);
    p = KFORGE_MAD(p, f, 1.417346258e-1f);
    p = KFORGE_MAD(p, f, -1.662891941e-1f);
    p = KFORGE_MAD(p, f, 2.000269516e-1f);
    p = KFORGE_MAD(p, f, -2.500075123e-1f);
    p = KFORGE_MAD(p, f, 3.333331295e-1f);
    p = KFORGE_MAD(p, f, -4.999999773e-1f);
    const float value = exponent * 0.693359375f + (f + (f * f * p - exponent * 2.12194440e-4f));
    return KFORGE_LOG_ENDS(x, value);
}
#endif

#ifndef KFORGE_HAS_EXPM1
// exp(x) - 1 without the loss that the subtraction has near zero.
KFORGE_FUNCTION float KFORGE(expm1)(float x) {
    float p = 2.495704588e-5f;
    p = KFORGE_MAD(p, x, 1.996218508e-4f);
    p = KFORGE_MAD(p, x, 1.388860794e-3f);
    p = KFORGE_MAD(p, x, 8.333182044e-3f);
    p = KFORGE_MAD(p, x, 4.166666836e-2f);
    p = KFORGE_MAD(p, x, 1.666666714e-1f);
    p = KFORGE_MAD(p, x, 0.5f);
    const float far_out = KFORGE(exp)(x) - 1.0f;
    return KFORGE_CHOOSE(KFORGE_ABS(x) < 0.5f, x + x * x * p, far_out);
}
#endif

#ifndef KFORGE_HAS_LOG1P
// log(1 + x), and what the addition has lost.
KFORGE_FUNCTION float KFORGE(log1p)(float x) {
    const float finite = KFORGE_CHOOSE(x > 3e38f, 3e38f, x);
    const float sum = KFORGE_ROUNDED(1.0f + finite);  // (1 + x) - 1 is not x, though some compilers take it for that
    const float divisor = KFORGE_CHOOSE(sum > 0.0f, sum, 1.0f);
    const float lost = finite - (sum - 1.0f);
    return KFORGE(log)(1.0f + x) + lost / divisor;
}
#endif

#ifndef KFORGE_HAS_TANH
// A quotient of polynomials of x * x, up to where single precision has reached one.
KFORGE_FUNCTION float KFORGE(tanh)(float x) {
    const float s = KFORGE_SMALLER(x * x, 81.0f);
    float p = -8.488745830e-14f;
    p = KFORGE_MAD(p, s, 5.277961711e-11f);
    p = KFORGE_MAD(p, s, -2.022525198e-8f);
    p = KFORGE_MAD(p, s, 1.115431434e-5f);
    p = KFORGE_MAD(p, s, 3.103956763e-3f);
    p = KFORGE_MAD(p, s, 1.308401058e-1f);
    p = KFORGE_MAD(p, s, 9.999999934e-1f);
    float q = 2.546146040e-4f;
    q = KFORGE_MAD(q, s, 2.449518054e-2f);
    q = KFORGE_MAD(q, s, 4.641733768e-1f);
    q = KFORGE_MAD(q, s, 1.0f);
    const float value = x * p / q;
    // exactly one far out: what a formula multiplies the rest with may be large
    return KFORGE_CHOOSE(KFORGE_ABS(x) > 8.9f, KFORGE_ONE_LIKE(x), value);
}
#endif

#ifndef KFORGE_HAS_ERF
// A quotient of polynomials of x * x, up to where single precision has reached one.
KFORGE_FUNCTION float KFORGE(erf)(float x) {
    const float s = KFORGE_SMALLER(x * x, 15.21f);
    float p = -1.267699960e-8f;
    p = KFORGE_MAD(p, s, 4.586487548e-6f);
    p = KFORGE_MAD(p, s, 3.758999959e-4f);
    p = KFORGE_MAD(p, s, 3.835005416e-3f);
    p = KFORGE_MAD(p, s, 5.422104958e-2f);
    p = KFORGE_MAD(p, s, 1.851063582e-1f);
    p = KFORGE_MAD(p, s, 1.128379169f);
    float q = 6.218574781e-5f;
    q = KFORGE_MAD(q, s, 1.299645101e-3f);
    q = KFORGE_MAD(q, s, 1.541975709e-2f);
    q = KFORGE_MAD(q, s, 1.138449010e-1f);
    q = KFORGE_MAD(q, s, 4.973796429e-1f);
    q = KFORGE_MAD(q, s, 1.0f);
    const float value = x * p / q;
    // exactly one far out: what a formula multiplies the rest with may be large
    return KFORGE_CHOOSE(KFORGE_ABS(x) > 3.88f, KFORGE_ONE_LIKE(x), value);
}
#endif

KFORGE_FUNCTION float KFORGE(sigmoid)(float x) { return 1.0f / (1.0f + KFORGE(exp)(-x)); }

KFORGE_FUNCTION float KFORGE(silu)(float x) { return x / (1.0f + KFORGE(exp)(-x)); }

// As torch.nn.functional.gelu computes it, in this order: minus infinity gives NaN.
KFORGE_FUNCTION float KFORGE(gelu)(float x) { return 0.5f * x * (1.0f + KFORGE(erf)(x * 0.707106781f)); }

// gelu with approximate="tanh": (1 + tanh(u)) / 2 is sigmoid(2 u), which loses nothing where tanh(u) is nearly -1.
KFORGE_FUNCTION float KFORGE(gelu_tanh)(float x) {
    const float doubled = 1.59576912f * (x + 0.044715f * x * x * x);
    return x / (1.0f + KFORGE(exp)(-doubled));
}

// With torch's threshold of 20, beyond which softplus(x) is x.
KFORGE_FUNCTION float KFORGE(softplus)(float x) {
    return KFORGE_CHOOSE(x > 20.0f, x, KFORGE(log1p)(KFORGE(exp)(x)));
}
