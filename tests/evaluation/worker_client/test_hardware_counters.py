"""Events of another process: those that the kernel counts itself are on every Linux machine."""

import subprocess
import sys
import time

import pytest

from kforge.evaluation.worker_client.hardware_counters import EVENTS, SOFTWARE, Counters, Event, NoCounters

TURNING = "while True: pass"
CLOCK, FAULTS = Event("task clock", SOFTWARE, 1), Event("page faults", SOFTWARE, 2)


def counted(events: tuple[Event, ...], seconds: float = 0.3) -> tuple[dict[str, float], dict[str, float]] | str:
    """What another process does in some seconds, and what is counted after the end; or why nothing is."""
    with subprocess.Popen([sys.executable, "-c", TURNING]) as turning:
        try:
            counters = Counters.open(turning.pid, events)
            counters.start()
            time.sleep(seconds)
            found = counters.stop()
            time.sleep(seconds)
            later = counters.stop()
            counters.close()
        except NoCounters as reason:
            return str(reason)
        finally:
            turning.kill()
    return found, later


def test_events_are_counted_between_start_and_stop() -> None:
    found = counted((CLOCK, FAULTS))
    if isinstance(found, str):  # a container may forbid all events
        assert found.startswith(("only administrators", "the kernel refuses", "this system does not"))
        return
    assert found[0].keys() == {"task clock", "page faults"}
    assert 0 < found[0]["task clock"] < 10e9, "nanoseconds"
    assert found[1] == found[0], "nothing is counted after the end"


def test_an_event_that_does_not_exist_is_refused_with_a_reason() -> None:
    with subprocess.Popen([sys.executable, "-c", TURNING]) as turning:
        try:
            with pytest.raises(NoCounters, match=r"\w"):
                Counters.open(turning.pid, (Event("nothing", SOFTWARE, 10_000),))
        finally:
            turning.kill()


def test_a_process_that_has_ended_has_no_counters() -> None:
    with pytest.raises(NoCounters, match="does not offer them"):
        Counters.open(2**22 + 5)


def test_the_processors_own_events_are_counted_or_a_reason_is_told() -> None:
    found = counted(EVENTS)
    if isinstance(found, str):
        assert "\n" not in found
        return
    assert found[0].keys() <= {event.name for event in EVENTS}
    assert max(found[0].values()) > 0
