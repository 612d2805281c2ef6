"""kforge turns a PyTorch module into a verified, faster kernel for the accelerator at hand.

    fast = kforge.forge(module, example_inputs)    # a drop-in nn.Module, with fast.receipt

Importing it is cheap: torch and the rest are imported by what needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.api import forge, load
    from kforge.drop_in import FallbackWarning, SpeedWarning
    from kforge.drop_in.module import ForgedModule

__version__ = "0.1.0"
__all__ = ["FallbackWarning", "ForgedModule", "SpeedWarning", "__version__", "forge", "load"]

_HOMES = {
    "FallbackWarning": "kforge.drop_in",
    "ForgedModule": "kforge.drop_in.module",
    "SpeedWarning": "kforge.drop_in",
    "forge": "kforge.api",
    "load": "kforge.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kforge' has no attribute {name!r}")
