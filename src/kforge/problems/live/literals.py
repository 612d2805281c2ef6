"""Writes Python values as source text. (torch)"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from kforge.errors import ProblemError

LARGEST_LITERAL = 64
"""Most elements of a tensor that is written out as source."""


class Code(str):
    """Source text that is already written; `source_of` returns it unchanged."""

    __slots__ = ()


def source_of(value: Any) -> str:
    """Return an expression for this value, for source that imports `torch`. Raises ProblemError if the value cannot be
    written.

    Named tuples and other subclasses are written as plain tuples and dicts.
    """
    match value:
        case Code():
            return str(value)
        case bool() | int() | str() | None | complex():
            return repr(value)
        case float():
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        case list():
            return f"[{', '.join(map(source_of, value))}]"
        case tuple():
            return f"({', '.join(map(source_of, value))}{',' if len(value) == 1 else ''})"
        case Mapping():
            return "{" + ", ".join(f"{source_of(key)}: {source_of(item)}" for key, item in value.items()) + "}"
        case torch.dtype() | torch.layout() | torch.memory_format():
            return str(value)
        case torch.Tensor():
            return f"torch.tensor({source_of(value.tolist())}, dtype={value.dtype})"
    raise ProblemError(
        f"an input or an operator's argument has type {type(value).__name__}, which cannot be written as Python source "
        "into a problem file; tensors, numbers, strings, lists, tuples and dicts can"
    )
