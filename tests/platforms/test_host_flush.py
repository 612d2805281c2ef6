"""The flush of the host's caches."""

import threading

import pytest

from kforge.platforms import host
from kforge.platforms.host import HostFlush

SIZE = 1 << 16


def test_every_processor_rewrites_a_part_and_all_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[set[int]] = []
    monkeypatch.setattr(host, "processors", lambda: {0, 1, 2})
    monkeypatch.setattr(host, "pin", lambda _, to: pinned.append(to))
    flush = HostFlush(SIZE)
    flush.run()
    assert sorted(pinned, key=min) == [{0}, {1}, {2}]
    assert (flush._buffer == 1).all()


def test_leaves_no_thread_and_does_not_pin_its_caller() -> None:
    threads, processors = threading.active_count(), host.processors()
    HostFlush(SIZE).run()
    assert threading.active_count() == threads, "a process that forks must have one thread"
    assert host.processors() == processors


def test_a_processor_that_cannot_be_used_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(host, "pin", refuse)
    with pytest.raises(PermissionError):
        HostFlush(SIZE).run()
