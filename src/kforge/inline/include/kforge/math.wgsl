// The words of functions.h in WGSL. It has no infinite constant, so infinity and NaN are the bits of variables.

var<private> KFORGE_INFINITE: u32 = 0x7f800000u;
var<private> KFORGE_NOT_A_NUMBER: u32 = 0x7fc00000u;

fn KFORGE_CHOOSE(condition: bool, yes: f32, no: f32) -> f32 { return select(no, yes, condition); }
fn KFORGE_LARGER(a: f32, b: f32) -> f32 { return max(a, b); }
fn KFORGE_SMALLER(a: f32, b: f32) -> f32 { return min(a, b); }
fn KFORGE_ABS(x: f32) -> f32 { return abs(x); }
fn KFORGE_MAD(a: f32, b: f32, c: f32) -> f32 { return fma(a, b, c); }
fn KFORGE_ROUND(x: f32) -> f32 { return floor(x + 0.5); }
fn KFORGE_INT(x: f32) -> i32 { return i32(x); }
fn KFORGE_FLOAT(x: i32) -> f32 { return f32(x); }
fn KFORGE_BITS(x: f32) -> i32 { return bitcast<i32>(x); }
fn KFORGE_FROM_BITS(x: i32) -> f32 { return bitcast<f32>(x); }
// The same number, behind an operation on integers that no compiler of floating-point expressions looks through.
fn KFORGE_ROUNDED(x: f32) -> f32 { return bitcast<f32>(max(bitcast<i32>(x), -2147483647)); }
fn KFORGE_ONE_LIKE(x: f32) -> f32 { return select(1.0, -1.0, x < 0.0); }
// by its bits: implementations may assume that there is no NaN
fn KFORGE_IS_NAN(x: f32) -> bool { return (bitcast<i32>(x) & 0x7fffffff) > 0x7f800000; }

fn KFORGE_EXP_ENDS(x: f32, value: f32) -> f32 {
    let low = select(value, 0.0, x < -86.6);
    let high = select(low, bitcast<f32>(KFORGE_INFINITE), x > 88.73);
    return select(high, x, KFORGE_IS_NAN(x));
}

fn KFORGE_LOG_ENDS(x: f32, value: f32) -> f32 {
    let high = select(value, x, x > 3.4028234e38);
    let low = select(high, -bitcast<f32>(KFORGE_INFINITE), x == 0.0);
    return select(bitcast<f32>(KFORGE_NOT_A_NUMBER), low, x >= 0.0);
}
