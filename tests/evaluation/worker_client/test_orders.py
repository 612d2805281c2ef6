"""A program that answers every order just in time does not hold the evaluator for as long as it likes."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kforge import platforms
from kforge.evaluation.constants import CALL_DEADLINES
from kforge.evaluation.transport import wire
from kforge.evaluation.worker_client.orders import Fault, Orders
from kforge.evaluation.worker_client.output_access import HostAccess
from kforge.records import RuntimeFailure

DEADLINE = 60.0


class Process:
    channel = None
    killed = False

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def process() -> Process:
    return Process()


def make_calls(
    process: Process, monkeypatch: pytest.MonkeyPatch, seconds: float, calls: int, *, trusted: bool = False
) -> None:
    """Make calls that take so long each, by a clock of our own."""
    clock = SimpleNamespace(now=0.0)

    def exchange(self: Orders, order: wire.WireMessage, deadline: float, **_: Any) -> wire.WireMessage:
        assert seconds < deadline
        clock.now += seconds
        return wire.Result(None, [])

    monkeypatch.setattr("kforge.evaluation.worker_client.orders.time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(Orders, "_exchange", exchange)
    orders = Orders(process, HostAccess(platforms.find("null").adapter), trusted=trusted)  # type: ignore[arg-type]
    for _ in range(calls):
        orders.order(wire.Call([], 0, None), wire.Result, DEADLINE)


def test_calls_that_are_all_just_in_time_time_out_together(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Fault, match="together took more than 900 s") as caught:
        make_calls(process, monkeypatch, DEADLINE - 1, CALL_DEADLINES + 1)
    assert isinstance(caught.value.verdict, RuntimeFailure)
    assert caught.value.verdict.fault == "timed_out"
    assert process.killed


@pytest.mark.parametrize(("seconds", "calls", "trusted"), [(15.0, 60, False), (59.0, 15, False), (59.0, 60, True)])
def test_slow_honest_programs_and_baselines_may_end(
    process: Process, monkeypatch: pytest.MonkeyPatch, seconds: float, calls: int, trusted: bool
) -> None:
    make_calls(process, monkeypatch, seconds, calls, trusted=trusted)
    assert not process.killed


def test_a_process_that_ended_in_a_timed_order_is_seen() -> None:
    """Cause: work in a child that had ended when the worker was stopped counted nowhere in a head-to-head."""
    process = SimpleNamespace(channel=None, pid=os.getpid(), helpers=[])
    orders = Orders(process, HostAccess(platforms.find("null").adapter), trusted=False)  # type: ignore[arg-type]
    orders._account(orders._worked(), 1.0)
    assert not orders.has_helpers
    before = orders._worked()
    subprocess.run([sys.executable, "-c", "for _ in range(3_000_000): pass"], check=True)
    orders._account(before, 1.0)
    assert orders.has_helpers
