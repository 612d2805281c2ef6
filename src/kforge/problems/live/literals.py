"""Writes values as Python source. (torch)"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from kforge.errors import ProblemError

LARGEST_LITERAL = 64
"""Tensors of more elements than this are not written out."""


class Code(str):
    """Source text, whose repr is the text itself."""

    __slots__ = ()


def source_of(value: Any) -> str:
    """Return the expression that makes this value, with `torch` in scope. Raises ProblemError for a value without one.

    Subclasses of tuple and dict (named tuples, torch's return types) are written as plain ones.
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
