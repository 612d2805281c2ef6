"""The evaluator: builds, verifies and times a candidate, in three kinds of processes.

The orchestrator (the user's process) starts the referee. The referee knows the right answers and reads the clock. It
starts workers, which run the candidate in a sandbox. The orchestrator trusts the referee, and neither trusts a worker.

Guaranteed: a candidate never runs in the process that judges it. What a worker says can only make its own candidate
fail. Every step has a deadline, after which the process is killed. A verdict says whether a worker timed out, died or
raised an exception. docs/threat-model.md lists what is not guaranteed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.evaluation.judge import Judge

__all__ = ["Judge"]


def __getattr__(name: str) -> Any:
    """Import `Judge` only when it is first used.

    The referee and its fork server import this package too, and must not spend time on modules that only the
    orchestrator needs.
    """
    if name == "Judge":
        from kforge.evaluation.judge import Judge

        return Judge
    raise AttributeError(f"module 'kforge.evaluation' has no attribute {name!r}")
