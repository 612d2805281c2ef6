"""kforge turns a PyTorch module into a verified, faster kernel for the accelerator at hand.

    fast = kforge.forge(module, example_inputs)    # a drop-in nn.Module, with fast.receipt

Importing it is cheap: torch and the rest are imported by what needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.api import forge

__version__ = "0.1.0"
__all__ = ["__version__", "forge"]


def __getattr__(name: str) -> Any:
    if name == "forge":
        from kforge.api import forge

        return forge
    raise AttributeError(f"module 'kforge' has no attribute {name!r}")
