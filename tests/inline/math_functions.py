"""What the functions of <kforge/math.h> promise in every language: their error, infinities, NaN and exact limits."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from benchmarks.building_blocks import FUNCTIONS, LANGUAGES, SMALLEST, SMALLEST_OF, errors, scale

from kforge import inline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Apply = Callable[[str, torch.Tensor], torch.Tensor]

LARGEST_ERROR = {
    "exp": 1.5, "log": 1.5, "expm1": 2.0, "log1p": 2.5, "tanh": 5.5, "erf": 7.0, "sigmoid": 3.0, "silu": 3.5,
    "gelu": 4.0, "gelu_tanh": 2.5, "softplus": 3.0,
}  # fmt: skip
"""In units in the last place, as docs/building-blocks.md promises."""
LIMITS = {"tanh": (9.1, 1.0), "erf": (4.0, 1.0), "sigmoid": (104.0, 1.0)}
"""For functions with a limit: from where on it is reached, and the limit."""
NEAR = [
    0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38,
    -86.6, -87.3, -103.9, 88.72, 88.73, 89.0, 8.9, 9.0, 3.88, 3.92, 0.5, -0.5, 20.0, 20.5, 16777216.0, 2.0**127,
]  # fmt: skip
PAIRS = [1.0, -2.0, math.nan, math.inf, -math.inf]


def numbers(stride: int) -> torch.Tensor:
    """Return every so manieth float32 number, of every size and sign, and those where something ends or begins.

    A stride that is a prime leaves no pattern of bits out.
    """
    bits = torch.arange(-(2**31), 2**31, stride, dtype=torch.int64).to(torch.int32)
    return torch.cat([bits.view(torch.float32), torch.tensor(NEAR)])


def build(language: str) -> Apply:
    """Return what applies a function of a name to a tensor, by a kernel in this language."""
    written = LANGUAGES[language]
    library = inline.compile(written.source(), language)
    return lambda name, x: written.launch(library, name, x)


def check(name: str, x: torch.Tensor, got: torch.Tensor, bound: float | None = None) -> None:
    """Assert that results are near the truth in double precision, and exact where there is nothing to round."""
    exact = FUNCTIONS[name](x.double())
    rounded = exact.float()
    assert torch.equal(got.isnan(), exact.isnan()), "NaN for NaN and outside the domain, and nowhere else"
    ends = rounded.isinf()
    off = got[ends] != rounded[ends]  # at the end of the range a result may be rounded to infinity, or just not
    assert bool((exact[ends][off].abs() < 3.41e38).all())
    assert float(errors(name, x, got).nan_to_num(0.0).max()) <= (bound or LARGEST_ERROR[name])
    smallest = SMALLEST_OF.get(name, SMALLEST)
    hidden = scale(name, x) < smallest
    assert float((got.double() - exact)[hidden].abs().max()) <= smallest
    if name in LIMITS:
        begin, limit = LIMITS[name]
        far = x.abs() >= begin
        assert torch.equal(got[far], rounded[far].nan_to_num(7.0)), f"exactly {limit} far out"


def check_all(apply: Apply, stride: int, bounds: Mapping[str, float] = MappingProxyType({})) -> None:
    """Assert it of all functions of a language. `bounds` has the errors that are larger there."""
    x = numbers(stride)
    for name in FUNCTIONS:
        check(name, x, apply(name, x), bounds.get(name))
