"""The smith: the built-in generator, which plays both agents without a model. It traces, rewrites, fuses, emits and
recommends."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.platforms import Platform

NAME = "builtin"
"""The smith's name for `--model`."""


def writes_for(platform: Platform) -> bool:
    """Return whether the smith has a kernel language for this platform. Without one it returns the module unchanged."""
    return platform.manifest.kernels != ""
