"""Platforms for which kforge can write programs. Each is a folder with `platform.toml` and `example/`, and optionally
`examples/`, `adapter.py`, `preload.py` and `language.py`."""

from kforge.platforms.adapter import Adapter
from kforge.platforms.contracts import (
    Allocation,
    DeviceMemory,
    KernelDevice,
    Limit,
    NoProfiler,
    NoSanitizer,
    Overseer,
    Profiler,
    Sanitizer,
    SanitizerReport,
)
from kforge.platforms.kernels import KernelOwner
from kforge.platforms.manifest import Manifest, Tool
from kforge.platforms.registry import BrokenPlatform, Example, Platform, at_hand, available, find, load_folder, preload

__all__ = [
    "Adapter",
    "Allocation",
    "BrokenPlatform",
    "DeviceMemory",
    "Example",
    "KernelDevice",
    "KernelOwner",
    "Limit",
    "Manifest",
    "NoProfiler",
    "NoSanitizer",
    "Overseer",
    "Platform",
    "Profiler",
    "Sanitizer",
    "SanitizerReport",
    "Tool",
    "at_hand",
    "available",
    "find",
    "load_folder",
    "preload",
]
