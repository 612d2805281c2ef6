"""What GCC 12 and clang 14 say about loops, as they said it about the source below."""

from kforge.profiling.authored import loops, remarks

SOURCE = """\
#pragma omp parallel for
for (long row = 0; row < rows; ++row) {
    float sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (long i = 0; i < n; ++i) sum += in[i] * in[i];
    for (long i = 0; i < n; ++i) {
        to[i] = act(in[i]);
    }
    for (long i = 0; i < n; ++i) other += to[i];
}
"""
GCC = """\
kernel.cpp:3:35: missed: couldn't vectorize loop
kernel.cpp:3:35: missed: not vectorized: loop nest containing two or more consecutive inner loops cannot be vectorized
kernel.cpp:9:31: missed: couldn't vectorize loop
kernel.cpp:9:31: missed: Loop costings may not be worthwhile.
kernel.cpp:6:31: missed: couldn't vectorize loop
/usr/include/c++/12/cmath:223:26: missed: not vectorized: relevant stmt not supported: _83 = __builtin_expf (_46);
kernel.cpp:4:17: missed: couldn't vectorize loop
kernel.cpp:4:17: missed: Loop costings may not be worthwhile.
kernel.cpp:5:58: optimized: loop vectorized using 16 byte vectors
kernel.cpp:4:17: missed: statement clobbers memory: __builtin_memset (&D.24438, 0, 16);
"""
CLANG = """\
kernel.cpp:9:5: remark: the cost-model indicates that vectorization is not beneficial [-Rpass-missed=loop-vectorize]
kernel.cpp:9:5: remark: the cost-model indicates that interleaving is not beneficial [-Rpass-missed=loop-vectorize]
kernel.cpp:6:5: remark: loop not vectorized: call instruction cannot be vectorized [-Rpass-analysis=loop-vectorize]
kernel.cpp:4:5: remark: vectorized loop (vectorization width: 4, interleaved count: 2) [-Rpass=loop-vectorize]
"""


def told(log: str) -> dict[int, str]:
    return {
        loop.line: text for loop, text in remarks.by_loop(remarks.parse(log, "kernel.cpp"), loops.find(SOURCE)).items()
    }


def test_gcc() -> None:
    order = "the compiler expects no gain, or must keep a sum's order: `#pragma omp simd reduction`"
    assert told(GCC) == {
        2: "not vectorized: it contains other loops",
        5: "vectorized, 16-byte registers",
        6: "not vectorized: it calls expf, which has no vector form here",
        9: f"not vectorized: {order}",
    }


def test_gcc_about_a_loop_that_is_written_with_vector_types() -> None:
    said = """\
kernel.cpp:6:31: missed: couldn't vectorize loop
kernel.cpp:1:92: missed: not vectorized: no vectype for stmt: _148 = MEM[(const Stored * {ref-all})_83];
"""
    assert told(said) == {6: "not vectorized: its values are vectors already, or of a type that has no vectors"}


def test_clang() -> None:
    found = told(CLANG)
    assert found[5] == "vectorized, 4 elements at once"
    assert found[6] == "not vectorized: call instruction cannot be vectorized"
    assert found[9].startswith("not vectorized: the compiler expects no gain")


def test_remarks_on_headers_belong_to_no_loop() -> None:
    assert told("/usr/include/c++/12/cmath:5:1: optimized: loop vectorized using 16 byte vectors\n") == {}
