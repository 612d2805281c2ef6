"""Records of a problem, of the workload of one call, and of a candidate."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator

from kforge.records.numbers import Count
from kforge.records.record import Record

BYTE_ORDER_MARK = "\ufeff"


def without_mark(source: str) -> str:
    """Return the text without a byte-order mark at its beginning."""
    return source.removeprefix(BYTE_ORDER_MARK)


Source = Annotated[str, AfterValidator(without_mark)]
"""Python source without a byte-order mark, so that a file has the same digest with the mark and without."""


class Problem(Record):
    """A PyTorch module to make faster: a source text that defines `Model`, `get_inputs` and `get_init_inputs`."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"name", "state_path"})

    name: str
    source: Source
    """The source that is run. Overrides are already written into it."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Name and value of each `--set NAME=VALUE`, sorted by name."""
    state_digest: str | None = None
    """SHA-256 of the file with the weights of a live module; None for a problem file."""
    state_path: str | None = None
    """Path of the file with the weights of a live module; None for a problem file."""


class TensorSpec(Record):
    """Shape and dtype of a tensor."""

    shape: tuple[Count, ...]
    dtype: str
    """torch's name without the prefix, such as `float32`."""
    name: str = ""
    """Name in the module's state, for parameters and buffers; empty for inputs and outputs."""


class Workload(Record):
    """Facts about one call of a problem, found by running the reference."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[TensorSpec, ...]
    """The module's parameters and buffers."""
    flops: Count
    """Floating-point operations as torch counts them: only matmul-like operators, no elementwise work."""
    bytes_moved: Count
    """The least bytes that any program must move: every input, parameter and output once."""
    labels: tuple[str, ...] = ()
    """Properties of the reference, such as `random` or `updates state` (`problems/workload.py`)."""


class Candidate(Record):
    """A program for one platform: a Python file that defines `ModelNew`."""

    source: Source
    platform: str
