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


class PromptSet(StrEnum):
    """The template sets by which agents are asked."""

    STRUCTURED = "structured"
    ZERO_SHOT = "zero-shot"


class CompileMode(StrEnum):
    """Modes of torch.compile, by its own names. On devices that support it, the second and third replay recorded
    launches, and then copy a call's inputs into the recorded buffers."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"


class Step(StrEnum):
    """The questions of the loop."""

    GENERATE = "generate"
    REPAIR = "repair"
    ANALYZE = "analyze"
    OPTIMIZE = "optimize"


class FailedState(StrEnum):
    """The states of a program that a repair begins with."""

    GENERATION_FAILURE = "generation_failure"
    COMPILATION_FAILURE = "compilation_failure"
    RUNTIME_ERROR = "runtime_error"
    MISMATCH = "mismatch"
    REJECTED = "rejected"
