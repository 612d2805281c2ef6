"""Exit statuses of what kforge raises: 1 only where something was judged and found wanting."""

from __future__ import annotations

import pytest

from kforge.cli import run
from kforge.errors import (
    ChannelError,
    EvaluationError,
    InputError,
    KforgeError,
    NothingCorrect,
    ProviderError,
    WaitingForReplies,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("no such file"), 2),
        (EvaluationError("the referee died"), 2),
        (ChannelError("no frame"), 2),
        (ProviderError("out of credit"), 2),
        (NothingCorrect("no attempt was correct"), 1),
        (WaitingForReplies(("a1",)), 75),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_evaluator_that_failed_is_not_a_candidate_that_did(
    error: KforgeError, status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Cause: whatever was no bad input had status 1, by which a script takes the candidate for wrong."""

    def fail(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr("kforge.cli.app.app", fail)
    assert run(["eval"]) == status
    assert capfd.readouterr().err.count("\n") == 1
