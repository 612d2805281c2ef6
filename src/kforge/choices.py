"""The names that a user can choose from. Nothing is imported here, so that `kforge --help` answers at once."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str], *, most: int = 1) -> str:
    """Return the question for a name that is wrong: `did you mean 'softmax'?` Empty if no name is like it.

    A name with folders, such as `norms/layer_norm`, is also like its last part. At most `most` names are suggested.
    """
    import difflib

    whole = {each.lower(): each for each in names}
    last = {each.rpartition("/")[2]: each for each in whole}
    close = difflib.get_close_matches(name.lower(), {**whole, **last}, n=2 * most)
    meant = dict.fromkeys(whole[last.get(each, each)] for each in close)
    quoted = [repr(each) for each in meant][:most]
    return f"did you mean {' or '.join(quoted)}?" if quoted else ""


class Precision(StrEnum):
    """How exact a program must be. A program that computes in a lower precision than strict must declare it."""

    STRICT = "strict"
    TF32 = "tf32"
    HALF = "half"


class Track(StrEnum):
    """Whether a library's kernels may do the work, or only the program's own."""

    LIBRARY = "library"
    CUSTOM = "custom"


class ProfileForm(StrEnum):
    """How the performance analysis agent gets a profile."""

    TEXT = "text"
    IMAGE = "image"
    BOTH = "both"
    NONE = "none"


class PromptSet(StrEnum):
    """The sets of prompt templates."""

    STRUCTURED = "structured"
    ZERO_SHOT = "zero-shot"


class CompileMode(StrEnum):
    """Modes of torch.compile, under torch's own names. On devices that support it, `REDUCE_OVERHEAD` and `MAX_AUTOTUNE`
    replay recorded launches, and copy the inputs of each call into the recorded buffers."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"


class Step(StrEnum):
    """The kinds of questions that the loop asks an agent."""

    GENERATE = "generate"
    REPAIR = "repair"
    ANALYZE = "analyze"
    OPTIMIZE = "optimize"


class FailedState(StrEnum):
    """The states of a failed program, which a repair starts from."""

    GENERATION_FAILURE = "generation_failure"
    COMPILATION_FAILURE = "compilation_failure"
    RUNTIME_ERROR = "runtime_error"
    MISMATCH = "mismatch"
    REJECTED = "rejected"
