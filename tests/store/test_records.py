from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kforge.records import Attempt, HeadToHead, Standing, best_attempt
from kforge.store import Header
from kforge.store.records import run_id

TIMES = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2999, 12, 31), timezones=st.just(UTC))


@given(st.text(), TIMES)
def test_an_id_is_a_safe_file_name(name: str, now: datetime) -> None:
    assert re.fullmatch(r"\d{8}-\d{6}-[a-z0-9]+(-[a-z0-9]+)*-[a-z2-9]{4}", run_id(name, now))
    assert len(run_id(name, now)) <= 64


@given(TIMES, TIMES)
def test_ids_sort_by_time(one: datetime, other: datetime) -> None:
    one, other = sorted((one, other))
    if other - one >= timedelta(seconds=1):
        assert run_id("z", one) < run_id("a", other)


def test_ids_tell_utc_and_do_not_repeat() -> None:
    noon = datetime(2026, 11, 15, 12, 0, 0, tzinfo=timezone(timedelta(hours=2)))
    assert run_id("Linear  Tail!", noon).startswith("20261115-100000-linear-tail-")
    assert run_id("日本", noon).startswith("20261115-100000-problem-")
    assert len({run_id("x", noon) for _ in range(50)}) == 50


FINITE = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(st.dictionaries(st.text(), st.text() | INTEGERS | st.booleans() | FINITE))
def test_options_keep_their_values_and_types(options: dict[str, Any]) -> None:
    header = Header.from_json(Header(**_HEADER, options=options).to_json())
    assert header.options == options
    assert [type(value) for value in header.options.values()] == [type(value) for value in options.values()]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), None, [1], 2**63])
def test_an_option_that_json_would_change_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        Header(**_HEADER, options={"x": value})


_HEADER: dict[str, Any] = {
    "id": "x", "created": "2026-11-15T12:00:00+00:00", "version": "0",
    "platform": "null", "model": "m", "analyst": "m",
    "problem": {"name": "p", "source": ""},
    "workload": {"inputs": (), "outputs": (), "parameters": (), "flops": 0, "bytes_moved": 0},
}  # fmt: skip


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00", "1969-12-31T00:00:00"])
def test_a_moment_that_other_time_zones_cannot_tell_is_refused(header: Any, moment: str) -> None:
    """Cause: one such run ended the list of all runs in a traceback."""
    with pytest.raises(ValidationError, match="its year is not between"):
        Header.model_validate(header().model_dump() | {"created": moment})


def test_a_header_has_a_format_that_this_kforge_knows() -> None:
    assert Header(**_HEADER, options={}).format == 1
    with pytest.raises(ValidationError):
        Header(**_HEADER, options={}, format=2)


def against(attempt: Attempt, rival: int, finding: Standing) -> Attempt:
    """The attempt, timed against this one."""
    return attempt.model_copy(update={"rival": rival, "head_to_head": HeadToHead(finding=finding)})


def test_the_best_is_the_first_until_another_is_faster_beside_it(attempt: Any) -> None:
    assert best_attempt([]) is None
    assert best_attempt([attempt(0), attempt(1, failed=True)]) is None
    first, high = attempt(0, speedup=1.1), attempt(1, speedup=9.0)
    assert best_attempt([first]) == first
    assert best_attempt([first, high]) == first, "speedups of two sessions are not compared"
    for finding in ("slower", "undecided"):
        assert best_attempt([first, against(high, 0, finding)]) == first
    low = against(attempt(1, speedup=0.9), 0, "faster")
    assert best_attempt([first, low]) == low
    assert best_attempt([first, low, against(attempt(2, speedup=3.0), 1, "undecided")]) == low
    assert best_attempt([first, low, against(attempt(2, speedup=3.0), 0, "faster")]) == low, "its rival is not the best"
    assert best_attempt([first, low, against(attempt(2), 1, "faster")]) == low, "it is not correct"


def test_only_a_program_has_a_rival_and_never_without_a_finding(attempt: Any) -> None:
    fields = attempt(1, speedup=2.0).model_dump()
    for wrong in ({"rival": 0}, {"head_to_head": HeadToHead(finding="faster")}):
        with pytest.raises(ValidationError, match="only an attempt with a program has a rival"):
            Attempt.model_validate(fields | wrong)
    with pytest.raises(ValidationError, match="only an attempt with a program has a rival"):
        Attempt.model_validate(
            attempt(1, failed=True).model_dump() | {"rival": 0, "head_to_head": HeadToHead(finding="faster")}
        )
