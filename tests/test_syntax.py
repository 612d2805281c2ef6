"""Sources on which the parser gives up become one reason, never a traceback. (cause: orchestrator)"""

from __future__ import annotations

import ast

import pytest

from kforge.errors import ProblemError
from kforge.evaluation.static_check import scan
from kforge.problems.originality import is_unchanged
from kforge.problems.source import load, parse
from kforge.records import Candidate, Problem
from kforge.syntax import LONGEST, Unparsable, parsed

ENTRY = "\nclass ModelNew: pass\n"
GIVEN_UP = {
    "signs": "x = " + "-" * 100_000 + "1",
    "lambdas": "x = " + "lambda: " * 3000 + "1",
    "parentheses": "x = " + "(" * 5000 + "1" + ")" * 5000,
    "sums": "x = " + "+".join(["1"] * 20_000),
    "attributes": "import time\ntime" + ".a" * 50_000 + ".perf_counter = 1",
    "alternatives": "x = 0\nif x: pass\n" + "elif x: pass\n" * 4000,
    "null byte": "x = '\0'",
    "half a pair": "x = '\ud800'",
    "decimal digits": "x = " + "9" * 5000,
    "too long": "#" * (LONGEST + 1),
}
LEGAL = {
    "attributes": "import time\nx = time" + ".a" * 2000,
    "sums": "x = " + "+".join(["1"] * 2000),
    "alternatives": "x = 0\nif x: pass\n" + "elif x: pass\n" * 2000,
    "hexadecimal digits": "x = 0x" + "f" * 5000,
    "table": "x = [" + "0.125, " * 100_000 + "]",
    "form feed": "\f\nx = 1\f",
    "line ends": "x = 1\r\ny = 2\r\n",
    "foreign words": "# größer → 漢字 🚀\nname_ä = 1",
}

OTHERWISE_IN_A_FILE = {
    "utf-7": "# coding: utf-7\nx = 1 # +AAo-x = 2",
    "latin-1": "# -*- coding: latin-1 -*-\nx = 'ä'",
    "second line": "#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nx = 'ä'",
    "after a carriage return": "\r# coding: utf-7\rx = 1 # +AAo-x = 2",
    "escapes": "# coding: unicode_escape\nx = 1 # \\nx = 2",
    "unknown": "# coding: klingon\nx = 1",
    "no text": "# coding: hex\nx = 1",
}
SAME_IN_A_FILE = {
    "utf-8": "# -*- coding: utf-8 -*-\nx = 'ä'",
    "utf8": "# coding=UTF8\nx = 'ä'",
    "latin-1 without a foreign letter": "# coding: latin-1\nx = 1",
    "third line": "x = 1\n\n# coding: utf-7\ny = '+AAo-'",
    "after code": "x = 1\n# coding: utf-7\ny = '+AAo-'",
    "in a text": "x = '# coding: utf-7'",
    "a word": "# encoding of the keys: first the high bits\nx = 'ä'",
}


@pytest.mark.parametrize("source", OTHERWISE_IN_A_FILE.values(), ids=OTHERWISE_IN_A_FILE)
def test_a_source_that_a_file_would_make_another_program_is_refused(source: str) -> None:
    """Cause: the text was judged, and `best.py` was read by the encoding that the text declares."""
    verdict = scan(source + ENTRY)
    assert verdict is not None
    assert verdict.state == "compilation_failure"
    assert "kforge writes UTF-8" in verdict.reason
    with pytest.raises(ProblemError, match="kforge writes UTF-8") as refused:
        parse(source, "there.py")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("source", SAME_IN_A_FILE.values(), ids=SAME_IN_A_FILE)
def test_a_source_that_is_the_same_program_in_a_file_is_parsed(source: str) -> None:
    assert ast.dump(parsed(source)) == ast.dump(ast.parse(source.encode()))


@pytest.mark.parametrize("source", GIVEN_UP.values(), ids=GIVEN_UP)
def test_a_candidate_that_cannot_be_parsed_gets_a_verdict(source: str) -> None:
    verdict = scan(source + ENTRY)
    assert verdict is not None
    assert verdict.state == "compilation_failure"
    assert verdict.reason.startswith("not valid Python: ")
    assert len(verdict.to_json()) < 10_000


@pytest.mark.parametrize("source", GIVEN_UP.values(), ids=GIVEN_UP)
def test_a_problem_that_cannot_be_parsed_is_refused_in_one_line(source: str) -> None:
    with pytest.raises(ProblemError, match="is not valid Python") as refused:
        parse(source, "there.py")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "source", [*GIVEN_UP.values(), *LEGAL.values()], ids=[*GIVEN_UP, *map("legal {}".format, LEGAL)]
)
def test_whether_a_program_is_the_original_can_be_asked_of_every_text(source: str) -> None:
    assert not is_unchanged("class Model: pass", source + ENTRY)
    assert not is_unchanged(source + "\nclass Model: pass", "class ModelNew:\n    y = 1\n")


@pytest.mark.parametrize("source", LEGAL.values(), ids=LEGAL)
def test_deep_and_long_sources_that_python_accepts_are_left_to_the_referee(source: str) -> None:
    compile(source, "legal", "exec")
    assert scan(source + ENTRY) is None


@pytest.mark.parametrize("source", LEGAL.values(), ids=LEGAL)
def test_deep_and_long_problems_that_python_accepts_are_loaded(tmp_path, source: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "legal.py"
    needed = "\nclass Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
    path.write_bytes((source + needed).encode())
    assert load(path).source == source + needed


def test_a_chain_of_attributes_is_quoted_in_short() -> None:
    verdict = scan("import time\ntime" + ".a" * 2000 + ".perf_counter = 1" + ENTRY)
    assert verdict is not None
    assert verdict.state == "rejected"
    assert len(verdict.reason) < 200


def test_what_is_too_deep_is_said_in_words() -> None:
    with pytest.raises(Unparsable, match="nested too deeply to parse"):
        parsed("-" * 100_000 + "1")


def test_a_log_counts_lines_as_python_does() -> None:
    verdict = scan("x = 1\f\ny = '\u2028'\nz = (\nclass ModelNew: pass")
    assert verdict is not None
    assert "   3 | z = (" in getattr(verdict, "log", "")


def test_a_byte_order_mark_is_no_part_of_a_source() -> None:
    """A program is the same with the mark and without: the digest is of the text without it."""
    assert Candidate(source="\ufeffx = 1", platform="p") == Candidate(source="x = 1", platform="p")
    assert Problem(name="n", source="\ufeffx = 1").digest == Problem(name="n", source="x = 1").digest
    assert Candidate(source="x = '\ufeff'", platform="p").source == "x = '\ufeff'"
