"""The worker factory: a worker of the reference never outlives a failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kforge.errors import EvaluationError, ProblemError
from kforge.evaluation.referee.workers import WorkerFactory

PROBLEM = SimpleNamespace(source="", digest="", state_digest=None)


class FailingClient:
    """A worker's client whose program cannot be constructed."""

    def __init__(self, failure: BaseException) -> None:
        self._failure = failure
        self.is_closed = False

    def await_ready(self) -> None:
        """The worker itself starts."""

    def load(self, *_: object) -> None:
        """The program can be imported."""

    def construct(self, *_: object, **__: object) -> None:
        raise self._failure

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("failure", [EvaluationError("died"), ProblemError("arguments"), KeyboardInterrupt()])
def test_reference_worker_is_closed_whatever_prevents_its_first_call(failure: BaseException) -> None:
    """Cause: only an EvaluationError closed it; with arguments that cannot be sent, the worker stayed."""
    factory = object.__new__(WorkerFactory)
    client: Any = FailingClient(failure)
    with pytest.raises(type(failure)):
        factory.reference_worker(cast("Any", SimpleNamespace(problem=PROBLEM)), client=client)
    assert client.is_closed
