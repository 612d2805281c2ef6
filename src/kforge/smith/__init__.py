"""The smith: the built-in generator, which plays both agents without a model. It traces, rewrites, fuses, emits and
recommends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.errors import PlatformError

if TYPE_CHECKING:
    from kforge.platforms import Platform

NAME = "builtin"
"""The smith's name for `--model`."""


def writes_for(platform: Platform) -> bool:
    """Return whether the smith has a kernel language for this platform. Without one it returns the module unchanged."""
    from kforge.smith.languages import find

    try:
        return find(platform) is not None
    except PlatformError:  # it names a language that is not here
        return False
