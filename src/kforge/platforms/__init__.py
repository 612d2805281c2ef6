"""Platforms: what kforge can write programs for. One folder each: `platform.toml`, `example/`, maybe
`adapter.py` and `preload.py`."""

from kforge.platforms.adapter import Adapter
from kforge.platforms.conditions import Limit
from kforge.platforms.device_memory import Allocation, DeviceMemory
from kforge.platforms.kernels import KernelOwner
from kforge.platforms.manifest import Manifest, Tool
from kforge.platforms.profiler import NoProfiler, Overseer, Profiler
from kforge.platforms.registry import BrokenPlatform, Example, Platform, at_hand, available, find, load_folder, preload
from kforge.platforms.sanitizer import NoSanitizer, Report, Sanitizer

__all__ = [
    "Adapter",
    "Allocation",
    "BrokenPlatform",
    "DeviceMemory",
    "Example",
    "KernelOwner",
    "Limit",
    "Manifest",
    "NoProfiler",
    "NoSanitizer",
    "Overseer",
    "Platform",
    "Profiler",
    "Report",
    "Sanitizer",
    "Tool",
    "at_hand",
    "available",
    "find",
    "load_folder",
    "preload",
]
