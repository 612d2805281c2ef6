"""The functions that kernels write out: as exact as single precision allows, and right where numbers end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from kforge import inline
from kforge.inline import configuration
from kforge.smith.languages.cpp import definitions

if TYPE_CHECKING:
    from collections.abc import Callable

EXACT: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": math.log,
    "expm1": math.expm1,
    "log1p": math.log1p,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}
RANGES = {"exp": (-86, 88), "log": (1e-30, 1e30), "expm1": (-20, 20), "log1p": (-0.999, 1e6), "sigmoid": (-80, 80)}
AT_THE_END = {
    "exp": {math.inf: math.inf, -math.inf: 0.0, 100.0: math.inf, -200.0: 0.0},
    "log": {0.0: -math.inf, -1.0: math.nan, math.inf: math.inf, 1e-40: -92.103},
    "expm1": {math.inf: math.inf, -math.inf: -1.0, 1e-20: 1e-20},
    "log1p": {-1.0: -math.inf, -2.0: math.nan, math.inf: math.inf, 1e-20: 1e-20},
    "tanh": {math.inf: 1.0, -math.inf: -1.0, 1e-20: 1e-20, 50.0: 1.0, -50.0: -1.0},
    "erf": {math.inf: 1.0, -math.inf: -1.0, 1e-20: 1.1283792e-20, 50.0: 1.0, -50.0: -1.0},
    "sigmoid": {math.inf: 1.0, -math.inf: 0.0},
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> inline.Library:
    kernels = "".join(
        f'extern "C" void apply_{name}(const float* __restrict__ x, float* __restrict__ y, int64_t n) {{\n'
        f"#pragma omp simd\nfor (int64_t i = 0; i < n; ++i) y[i] = {name}_of(x[i]); }}\n"
        for name in EXACT
    )
    headers = "#include <cmath>\n#include <cstdint>\n#include <cstring>\n"
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("builds")
        patch.setattr(configuration, "_current", configuration.Configuration(cache=cache))
        return inline.compile(headers + definitions.texts(EXACT) + kernels)


def applied(library: inline.Library, name: str, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    getattr(library, f"apply_{name}")(x, y, x.numel())
    return y


@pytest.mark.parametrize("name", EXACT)
def test_as_exact_as_single_precision_allows(library: inline.Library, name: str) -> None:
    low, high = RANGES.get(name, (-9, 9))
    random = np.random.default_rng(0)
    if name == "log":
        numbers = 10 ** random.uniform(-30, 30, 20_000)
    else:
        numbers = np.concatenate([random.uniform(low, high, 10_000), random.uniform(-1, 1, 10_000) * 0.99])
    x = torch.tensor(numbers, dtype=torch.float32)
    exact = torch.tensor([EXACT[name](v) for v in x.double().tolist()], dtype=torch.float64)
    error = (applied(library, name, x).double() - exact).abs() / exact.abs().clamp(min=1e-37)
    assert float(error.max()) < 6e-7


@pytest.mark.parametrize("name", EXACT)
def test_where_numbers_end(library: inline.Library, name: str) -> None:
    points = {**AT_THE_END[name], math.nan: math.nan}
    got = applied(library, name, torch.tensor(list(points), dtype=torch.float32)).tolist()
    for (x, expected), y in zip(points.items(), got, strict=True):
        if math.isnan(expected):
            assert math.isnan(y), f"{name}({x}) = {y}"
        else:
            assert y == pytest.approx(expected, rel=1e-4), f"{name}({x}) = {y}"
            assert y == expected or abs(expected) != 1.0, "a limit that is reached is reached exactly"
