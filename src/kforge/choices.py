"""The names that a user can choose from. Nothing is imported here, so that `kforge --help` answers at once."""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """How exact a program must be; declared, never sneaked in."""

    STRICT = "strict"
    TF32 = "tf32"
    HALF = "half"


class Track(StrEnum):
    """Whose kernels may do the work."""

    LIBRARY = "library"
    CUSTOM = "custom"


class CompileMode(StrEnum):
    """Modes of torch.compile, by its own names. The second and third replay recorded launches on devices that can do
    that, and then copy a call's inputs to where they were recorded."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"
