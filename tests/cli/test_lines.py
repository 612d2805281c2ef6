"""Lines on a terminal: none can be so long that a piece of it looks like a line of its own. (cause: orchestrator)"""

from __future__ import annotations

import io
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from kforge.cli.output.lines import HANGING, LONGEST, Line, note, note_progress, plain, say, wrapped
from kforge.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable

VERDICT = "correct: 20 cases, largest error 0.0e+00; 99.00x over eager: faster"


def rows(text: str, columns: int) -> list[str]:
    """What stands in each row of a terminal that goes on in the next one at its edge."""
    shown = []
    for line in text.split("\n"):
        row, used = "", 0
        for letter in line:
            width = 2 if unicodedata.east_asian_width(letter) in "WF" else 1 - bool(unicodedata.combining(letter))
            if used + width > columns:
                shown.append(row)
                row, used = "", 0
            row, used = row + letter, used + width
        shown.append(row)
    return shown


@pytest.mark.parametrize(
    "filler", ["x" * 80, " " * 80, "漢" * 40, "漢字 " * 16, "\u00a0" * 80, "/" + "y" * 79, "a" * 41 + "·" * 39],
    ids=["word", "spaces", "wide", "wide words", "no-break spaces", "path", "ambiguous"],
)  # fmt: skip
@pytest.mark.parametrize("cut", range(0, 30, 3))
def test_no_text_begins_a_row(filler: str, cut: int) -> None:
    line = wrapped(visible(f"runtime error: raised: {filler[cut:]}{VERDICT}"), 80)
    first, *others = rows(line, 80)
    assert first.startswith("runtime error")
    assert others
    assert all(row.startswith(HANGING) for row in others)


@given(st.text(), st.integers(10, 100))
def test_every_row_but_the_first_has_the_mark(text: str, columns: int) -> None:
    text = "x" + visible(text)
    _, *others = rows(wrapped(text, columns), columns)
    assert all(row.startswith(HANGING) for row in others)


@given(st.text(st.sampled_from("ab 漢\u3000\t")), st.integers(1, 20))
def test_only_spaces_are_lost_between_the_pieces(text: str, columns: int) -> None:
    first, *others = wrapped(text, columns).split("\n")
    margin = text[: len(text) - len(text.lstrip())][: columns // 2]
    assert all(piece.startswith(margin + HANGING) for piece in others)
    pieces = [first, *(piece.removeprefix(margin + HANGING) for piece in others)]
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(piece == piece.lstrip() for piece in pieces[1:])


@pytest.mark.parametrize("print_line", [say, note, note_progress])
def test_a_text_of_any_length_is_cut(print_line: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    """Cause: a reason or a name of megabytes, from a file of others, kept `show` busy for minutes."""
    print_line("x" * LONGEST)
    said = capsys.readouterr()
    assert "x" * LONGEST in said.out + said.err
    print_line("x" * 10 * LONGEST)
    said = capsys.readouterr()
    assert len(said.out + said.err) < LONGEST + 100
    assert "x..." in said.out + said.err
    assert len(plain("x" * 10 * LONGEST)) == LONGEST + 3
    assert len(Line("x" * 10 * LONGEST).text) == LONGEST + 3


def test_titles_and_progress_have_the_mark_too() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    console.print(Line(f"suite {'x' * 74}{VERDICT}"))
    first, second, third = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first.startswith("suite")
    assert second.startswith(HANGING)
    assert third.startswith(HANGING)


def test_a_table_wraps_its_title_as_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from kforge.cli.output.lines import say_table

    monkeypatch.setenv("COLUMNS", "80")
    table = Table("a", title=plain(f"{'x' * 90} {VERDICT}", "table.title"), title_justify="left")
    table.add_row("b")
    say_table(table)
    shown = capsys.readouterr().out.splitlines()
    assert not any(row.startswith("correct") for row in shown)
    assert shown[1].startswith(HANGING)
