"""Platforms: what kforge can write programs for. One folder each: `platform.toml`, `example/`, maybe `adapter.py`."""

from kforge.platforms.adapter import Adapter
from kforge.platforms.manifest import Manifest, Tool
from kforge.platforms.registry import BrokenPlatform, Example, Platform, at_hand, available, find, load_folder

__all__ = [
    "Adapter",
    "BrokenPlatform",
    "Example",
    "Manifest",
    "Platform",
    "Tool",
    "at_hand",
    "available",
    "find",
    "load_folder",
]
