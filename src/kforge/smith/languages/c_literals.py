"""Writes numbers as C source, which all languages but Triton and WGSL share."""

from __future__ import annotations

import math


def float_literal(value: float) -> str:
    """Return a float32 constant. Infinities and NaN are the macros of <math.h>."""
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if math.isnan(value):
        return "NAN"
    text = f"{value:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"
