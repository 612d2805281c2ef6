"""Silence around torch.export, with several threads at once."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from typing import TYPE_CHECKING

from kforge.problems.live.exporting import quiet

if TYPE_CHECKING:
    import pytest


def test_silences_its_own_thread_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def trace(number: int) -> None:
        barrier.wait()
        for _ in range(200):
            with quiet():
                sys.stderr.write("noise of torch.export\n")
                entered.set()
        left[number].set()

    barrier, entered = threading.Barrier(2), threading.Event()
    left = [threading.Event() for _ in range(2)]
    threads = [threading.Thread(target=trace, args=(number,)) for number in range(2)]
    before, level, filters = sys.stderr, logging.root.manager.disable, list(warnings.filters)
    for thread in threads:
        thread.start()
    assert entered.wait(20)
    count = 0
    while not all(event.is_set() for event in left):
        count += 1
        sys.stderr.write(f"line {count}\n")
    for thread in threads:
        thread.join()
    assert capsys.readouterr().err.splitlines() == [f"line {number}" for number in range(1, count + 1)]
    assert (sys.stderr, logging.root.manager.disable, warnings.filters) == (before, level, filters)


def test_a_line_that_another_thread_prints_meanwhile_appears(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet():
        other = threading.Thread(target=lambda: sys.stderr.write("4/5 norms/layer_norm: correct\n"))
        other.start()
        other.join()
        sys.stderr.write("noise of torch.export\n")
    assert capsys.readouterr().err == "4/5 norms/layer_norm: correct\n"


def test_silence_ends_when_threads_leave_in_the_order_in_which_they_came(capsys: pytest.CaptureFixture[str]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with quiet():
            inside.set()
            leave.wait(20)

    first = threading.Thread(target=hold)
    level = logging.root.manager.disable
    first.start()
    assert inside.wait(20)
    with quiet():
        leave.set()
        first.join()
        sys.stderr.write("noise of torch.export\n")
    sys.stderr.write("said afterwards\n")
    assert capsys.readouterr().err == "said afterwards\n"
    assert logging.root.manager.disable == level


def test_is_silent_again_inside_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet():
        with quiet():
            sys.stderr.write("inner\n")
        sys.stderr.write("outer\n")
    assert capsys.readouterr().err == ""
