"""The smith: kforge's built-in generator, which writes programs by fixed rules instead of asking a language model.

It traces a problem's module to a graph, rewrites the graph, decides which nodes share a kernel, writes the kernels, and
recommends the next change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.errors import PlatformError

if TYPE_CHECKING:
    from kforge.platforms import Platform

NAME = "builtin"
"""The value of `--model` that selects the smith."""


def writes_for(platform: Platform) -> bool:
    """Return whether the smith can write kernels for this platform.

    If it cannot, its only program for the platform is the problem's own module, unchanged.
    """
    from kforge.smith.languages import find

    try:
        return find(platform) is not None
    except PlatformError:  # the manifest names a kernel language that is not installed
        return False
