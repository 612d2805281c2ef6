from hypothesis import given
from hypothesis import strategies as st

from kforge.prompts import fenced, trim


@given(st.text(alphabet=st.characters(codec="utf-8")), st.integers(1, 8), st.integers(2, 60))
def test_a_trimmed_log_is_short(text, lines, chars):
    short = trim(text, lines, chars)
    assert len(short.split("\n")) <= lines + 3
    assert len(short) <= chars + len("\n[... 1000000 characters left out ...]\n")


@given(st.lists(st.text(alphabet="abc xyz", max_size=20), max_size=10))
def test_a_short_log_stays_whole(lines):
    text = "\n".join(["start", *lines, "end"])
    assert trim(text, 12, 1000) == "\n".join(line.rstrip() for line in text.split("\n"))


def test_both_ends_stay_and_the_gap_is_counted():
    log = "\n".join(f"line {n}" for n in range(100))
    assert trim(log, 5, 1000).split("\n") == [
        "line 0",
        "line 1",
        "line 2",
        "[... 95 lines left out ...]",
        "line 98",
        "line 99",
    ]


def test_one_endless_line_is_cut_in_the_middle():
    assert trim("a" * 50 + "b" * 50, 5, 10) == "aaaaa\n[... 90 characters left out ...]\nbbbbb"


def test_terminal_colours_are_taken_out():
    assert trim("\x1b[01;31m\x1b[Kerror:\x1b[m\x1b[K no", 5, 100) == "error: no"


@given(st.text(alphabet="`~a\n", max_size=40))
def test_a_text_cannot_close_its_own_fence(text):
    opening, *body, closing = fenced(text, "python").split("\n")
    fence = opening.removesuffix("python")
    assert closing == fence
    assert set(fence) == {"`"}
    assert not any(line.startswith(fence) for line in body)
    assert "\n".join(body) == text.rstrip()
