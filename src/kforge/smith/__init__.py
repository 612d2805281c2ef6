"""The smith: the built-in brains of both agents, no model needed. trace → rewrite → fuse → emit → recommend."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.platforms import Platform

NAME = "builtin"
"""What `--model` calls it."""


def writes_for(platform: Platform) -> bool:
    """Whether the smith has a kernel language for this platform. Without one its answer is the module unchanged."""
    return platform.manifest.kernels != ""
