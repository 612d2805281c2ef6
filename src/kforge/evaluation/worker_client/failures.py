"""Turns a worker's message about its program's failure into a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.evaluation.constants import MAX_LOG, MAX_REASON
from kforge.records import CompilationFailure, Rejected, RuntimeFailure

if TYPE_CHECKING:
    from kforge.evaluation.transport.wire import Failed


def as_verdict(failed: Failed) -> CompilationFailure | RuntimeFailure | Rejected:
    """Return the verdict. Reason and log are cut to the lengths that may be stored, printed and sent to a model."""
    # an honest worker keeps to these bounds by itself
    reason, log = _first_line(failed.reason), failed.log[-MAX_LOG:]
    if failed.category == "compile":
        return CompilationFailure(reason=reason, log=log)
    if failed.category == "foreign_output":
        return Rejected(rule="foreign_output", reason=reason)
    return RuntimeFailure(fault="raised", reason=reason, log=log)


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:MAX_REASON]
