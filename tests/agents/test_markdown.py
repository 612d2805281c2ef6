"""Fences of code blocks: found as the patterns say, and in linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.agents import markdown

OPENING = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*[^`\n]*$")
BEHIND_PROSE = re.compile(r"(?P<indent>)(?P<fence>`{3,}|~{3,})[ \t]*(?:python|py)\d*[ \t]*$", re.IGNORECASE)
LINES = st.lists(
    st.sampled_from(["`", "~", "```", "~~~", "`````", " ", "\t", "py", "Python", "3", "x = 1", "é", "c"]), max_size=9
).map("".join)


@given(LINES)
def test_a_fence_opens_where_the_pattern_says(line: str) -> None:
    """The patterns say it shortly; they backtrack, so they are used here and nowhere else."""
    for find, pattern in ((markdown._opening, OPENING.match), (markdown._opening_behind_prose, BEHIND_PROSE.search)):
        wanted, found = pattern(line), find(line)
        assert found == (None if wanted is None else (wanted["indent"], wanted["fence"]))


@given(LINES, st.sampled_from(["```", "````", "~~~", "~~~~~"]))
def test_a_fence_closes_where_the_pattern_says(line: str, marks: str) -> None:
    wanted = re.match(rf"^(?P<code>.*?){re.escape(marks[0])}{{{len(marks)},}}[ \t]*$", line)
    found = markdown._code_before_closing(line, markdown.Fence("", marks))
    assert found == (None if wanted is None else wanted["code"])


def seconds(text: str) -> float:
    """Processor time, the shortest of three."""
    taken = []
    for _ in range(3):
        begin = time.process_time()
        for _ in markdown.code_blocks(text, lambda _: False):
            pass
        taken.append(time.process_time() - begin)
    return min(taken)


@pytest.mark.parametrize(
    "line",
    ["{}x", "a{}x", "~~~{}`", "``` {}`", "~~~\n{}x", "```\n{}x", "```\na{} x", "a {} py x"],
    ids=lambda line: ascii(line),
)
@pytest.mark.parametrize("piece", ["~", "`", " ", "py1"])
def test_a_long_line_takes_linear_time(line: str, piece: str) -> None:
    """Cause: patterns that backtrack took 7.8 s for 20,000 marks. Sixteen times the length may take 80 times as long,
    where a quadratic search would take 256 times as long."""
    short, long = (line.format(piece * count) for count in (2_000, 32_000))
    assert seconds(long) < 80 * max(seconds(short), 1e-5)
