"""The evaluator: orchestrator → trusted referee → untrusted worker, three processes with typed borders.

Covered: a program never runs in the process that judges it; nothing it says decides anything but its own failure;
deadlines kill; *timed out*, *died* and *raised* are kept apart. Not covered yet: see `launch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.evaluation.judge import Judge

__all__ = ["Judge"]


def __getattr__(name: str) -> Any:
    """Import lazily: a referee and its fork server import this package too, and must not wait for what only an
    orchestrator needs."""
    if name == "Judge":
        from kforge.evaluation.judge import Judge

        return Judge
    raise AttributeError(f"module 'kforge.evaluation' has no attribute {name!r}")
