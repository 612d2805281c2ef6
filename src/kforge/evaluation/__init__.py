"""The evaluator: orchestrator → trusted referee → untrusted worker, three processes with typed borders.

Covered: a program never runs in the process that judges it; nothing it says decides anything but its own failure;
deadlines kill; *timed out*, *died* and *raised* are kept apart. Not covered yet: see `launch`.
"""

from kforge.evaluation.judge import Judge

__all__ = ["Judge"]
