"""The names that a user can choose from. Nothing is imported here, so that `kforge --help` answers at once."""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """How exact a program must be. A program must declare lower precision."""

    STRICT = "strict"
    TF32 = "tf32"
    HALF = "half"


class Track(StrEnum):
    """Which kernels may do the work."""

    LIBRARY = "library"
    CUSTOM = "custom"


class ProfileForm(StrEnum):
    """How the performance analysis agent gets a profile."""

    TEXT = "text"
    IMAGE = "image"
    BOTH = "both"


class CompileMode(StrEnum):
    """Modes of torch.compile, by its own names. On devices that support it, the second and third replay recorded
    launches, and then copy a call's inputs into the recorded buffers."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"
