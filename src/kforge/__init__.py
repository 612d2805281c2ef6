"""kforge turns a PyTorch module into a verified, faster kernel for the accelerator at hand.

    fast = kforge.forge(module, example_inputs)    # a drop-in nn.Module, with fast.receipt

Importing kforge is cheap: torch and other dependencies are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.api import SuiteResult, evaluate, forge, forge_suite, load, profile
    from kforge.drop_in import FallbackWarning, SpeedWarning
    from kforge.drop_in.module import ForgedModule
    from kforge.records import (
        CompilationFailure,
        Correct,
        Evaluation,
        GenerationFailure,
        Interval,
        Mismatch,
        Profile,
        Receipt,
        Rejected,
        RuntimeFailure,
        Timing,
        Verdict,
    )

__version__ = "0.1.0"
__all__ = [
    "CompilationFailure",
    "Correct",
    "Evaluation",
    "FallbackWarning",
    "ForgedModule",
    "GenerationFailure",
    "Interval",
    "Mismatch",
    "Profile",
    "Receipt",
    "Rejected",
    "RuntimeFailure",
    "SpeedWarning",
    "SuiteResult",
    "Timing",
    "Verdict",
    "__version__",
    "evaluate",
    "forge",
    "forge_suite",
    "load",
    "profile",
]


def __getattr__(name: str) -> Any:
    if name == "ForgedModule":
        from kforge.drop_in.module import ForgedModule

        return ForgedModule
    if name in ("FallbackWarning", "SpeedWarning"):
        from kforge import drop_in

        return getattr(drop_in, name)
    if name in ("SuiteResult", "evaluate", "forge", "forge_suite", "load", "profile"):
        from kforge import api

        return getattr(api, name)
    if name in __all__:
        from kforge import records

        return getattr(records, name)
    raise AttributeError(f"module 'kforge' has no attribute {name!r}")
