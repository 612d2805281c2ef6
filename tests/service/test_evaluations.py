"""The limits of a server: one request at a time, few that wait, and none for ever."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.service.conftest import RIGHT

from kforge import settings
from kforge.errors import EvaluationError, InputError
from kforge.service.evaluations import EvaluationService, Latest, ServiceOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def opened(problems: Path, clean_environment: dict[str, str]) -> Any:
    """Opens a service with these limits."""

    def make(**limits: Any) -> EvaluationService:
        options = ServiceOptions(problems=(str(problems),), platform="null", **limits)
        return EvaluationService(options, settings.load(clean_environment))

    return make


@contextmanager
def busy(service: EvaluationService) -> Iterator[None]:
    """While another request uses the judge."""
    began, may_end = threading.Event(), threading.Event()

    def work(_: object) -> None:
        began.set()
        may_end.wait()

    other = threading.Thread(target=service.within_limits, args=("tiny", work))
    other.start()
    began.wait()
    try:
        yield
    finally:
        may_end.set()
        other.join()


def test_one_request_too_many_is_told_to_come_later(opened: Any) -> None:
    with opened(waiting=0) as service:
        with busy(service), pytest.raises(InputError, match="busy: 0 requests wait already; try again later"):
            service.evaluate("tiny", RIGHT)
        assert service.within_limits("tiny", lambda _: "served") == "served"


def test_a_request_does_not_wait_for_others_for_ever(opened: Any) -> None:
    said = r"other requests took longer than 0\.1 s"
    with opened(waiting=1, seconds=0.1) as service, busy(service), pytest.raises(EvaluationError, match=said):
        service.evaluate("tiny", RIGHT)


@pytest.mark.parametrize("source", ["", " \n", "\ud800", "x" * (2**20 + 1)])
def test_what_is_no_program_is_one_clear_line(opened: Any, source: str) -> None:
    with opened() as service, pytest.raises(InputError, match="the source") as caught:
        service.evaluate("tiny", source)
    assert "\n" not in str(caught.value)


def test_only_the_latest_results_are_kept() -> None:
    kept: Latest[int] = Latest()
    for number in range(40):
        kept.put(("problem", str(number)), number)
    assert (kept.get(("problem", "7")), kept.get(("problem", "8")), kept.get(("problem", "39"))) == (None, 8, 39)
