"""A problem, its workload, and candidates for it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator

from kforge.records.numbers import Count
from kforge.records.record import Record

BYTE_ORDER_MARK = "\ufeff"


def without_mark(source: str) -> str:
    """Return the text without a byte-order mark at its beginning, which only says how a file is encoded."""
    return source.removeprefix(BYTE_ORDER_MARK)


Source = Annotated[str, AfterValidator(without_mark)]
"""Python source. Digests are of the text without a byte-order mark, so a program is the same with it and without."""


class Problem(Record):
    """A PyTorch module to make faster, as one source text with `Model`, `get_inputs` and `get_init_inputs`."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"name", "state_path"})

    name: str
    source: Source
    """The effective source: overrides are already written into it."""
    overrides: tuple[tuple[str, str], ...] = ()
    """`--set NAME=VALUE` as given, sorted by name."""
    state_digest: str | None = None
    """SHA-256 of the file with the weights of a live module; absent for a problem file."""
    state_path: str | None = None


class TensorSpec(Record):
    shape: tuple[Count, ...]
    dtype: str
    """torch's name without the prefix: `float32`."""


class Workload(Record):
    """The facts about one call of a problem, measured by running the reference once."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[TensorSpec, ...]
    flops: Count
    """Counted by torch for matmul-like operators; elementwise work is not counted."""
    bytes_moved: Count
    """The least any program must move: every input, parameter and output once."""
    labels: tuple[str, ...] = ()


class Candidate(Record):
    """One program: a Python file with a `ModelNew`, for one platform."""

    source: Source
    platform: str
