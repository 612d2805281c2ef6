"""What is left of a program after its worker is gone: ended within a time, however it resists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge.evaluation import constants
from kforge.evaluation.sandbox import layers

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 2**30
"""No process has such a number."""


def test_processes_that_replace_themselves_for_ever_do_not_hold_the_nursery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: the loop had no end as long as there was one more process."""
    monkeypatch.setattr(layers, "CLEAR_SECONDS", 0.05)
    monkeypatch.setattr(layers, "_children", lambda: {NOBODY})
    layer = object.__new__(layers.Layer)  # without making this process the parent of orphans
    layer._builds = {1: tmp_path}
    with pytest.raises(TimeoutError, match="did not end"):
        layer.clear(1)


def test_the_referee_outwaits_what_a_program_can_leave() -> None:
    """Cause: a sandbox that took long to clear up ended the nursery, which then was our own fault."""
    assert constants.CELL_SECONDS + constants.REMOVAL_SECONDS < constants.START_DEADLINE


def test_a_worker_that_left_nothing_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_children", set)
    layer = object.__new__(layers.Layer)
    layer._builds = {1: tmp_path}
    layer.clear(1)
    assert not layer._builds
