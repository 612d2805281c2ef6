"""Loops of C++ sources, by their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.profiling.authored.loops import LoopSpan, find, innermost, shown

NESTED = """\
#pragma omp parallel for
for (int row = 0; row < rows; ++row) {
    float sum = 0;  // for (a comment)
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; ++i) sum += in[row * n + i];
    for (int i = 0; i < n; ++i)
        if (in[i] > 0) {
            out[i] = sum;
        }
    while (sum > f(1, 2)) sum /= 2;
}
"""


def test_loops_are_found_with_their_pragmas_and_bodies() -> None:
    assert find(NESTED) == [LoopSpan(1, 2, 11), LoopSpan(4, 5, 5), LoopSpan(6, 6, 9), LoopSpan(10, 10, 10)]


@pytest.mark.parametrize(("line", "loop"), [(1, 2), (3, 2), (4, 5), (5, 5), (8, 6), (10, 10), (11, 2), (12, None)])
def test_a_line_belongs_to_the_innermost_loop(line: int, loop: int | None) -> None:
    found = innermost(find(NESTED), line)
    assert (found and found.line) == loop


@pytest.mark.parametrize(
    "source",
    [
        "// for (;;) {}",
        "/* while (true) {} */",
        'const char* text = "for (;;) {}";',
        'auto text = R"(for (;;) {})";',
        "char c = '(';",
        "#define LOOP for (;;) \\\n  {}",
    ],
)
def test_no_loop_is_found_in_comments_literals_and_macros(source: str) -> None:
    assert find(source) == []


def test_a_pragma_over_several_lines_belongs_to_its_loop() -> None:
    assert find("\n#pragma omp parallel for \\\n    schedule(static)\nfor (;;) f();\n") == [LoopSpan(2, 4, 4)]


@given(st.text(alphabet="for(while){};\"'/*\\\n #xR", max_size=200))
def test_any_text_has_loops_within_its_lines(source: str) -> None:
    count = source.count("\n") + 1
    for loop in find(source):
        assert 1 <= loop.first <= loop.line <= loop.last <= count


def test_lines_are_shown_on_one_line() -> None:
    assert shown(["  a  =   b;"], 1) == "a = b;"
    assert shown(["a"], 2) == ""
