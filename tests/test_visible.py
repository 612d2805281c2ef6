"""Foreign text on a screen: nothing in it is obeyed, and nothing in it is hidden. (cause: orchestrator)"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.visible import visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2K\rcorrect: 99.00x\x07", "\\x1b[2K\\rcorrect: 99.00x\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("a\nb\tc", "a\\nb c"),
        ("\u202egnorw\u2066", "\\u202egnorw\\u2066"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("one\u2028two\u2029\x85", "one\\u2028two\\u2029\\x85"),
        ("a\u0301\u0302\u0303\u0304b\u0301", "a\u0301\u0302\\u0303\\u0304b\u0301"),
    ],
)
def test_characters_that_a_terminal_obeys_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "letter",
    "\u00a0\u2003\u202f\u3000\u034f\ufe0f\U000e0100\u3164\uffa0\u115f\u17b4\u180b\u2800\u2065\ufff0\U000e0080\ue000\u0336\u20dd"
    "\U0001d159\U0010fffd",
)
def test_blank_undefined_and_overlaying_characters_are_escaped(letter: str) -> None:
    shown = visible(f"a{letter}b")
    assert shown.isascii()
    assert shown.isprintable()
    assert ascii(f"a{letter}b") == f"'{shown}'"


@pytest.mark.parametrize("text", ["", "3 µs → 漢字 … 1.5×", "🚀 ok", "[bold]x[/bold] \\x1b", "naïve café"])  # noqa: RUF001
def test_text_that_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_page_keeps_its_lines_and_nothing_else() -> None:
    assert visible_lines("a\r\nb\x1b[A\n") == "a\\r\nb\\x1b[A\n"


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    assert {unicodedata.category(letter) for letter in visible(text)}.isdisjoint({"Cc", "Cf", "Zl", "Zp", "Cn", "Co"})
