"""The functions of <kforge/math.h>: their error over all numbers, right where numbers end, and vectorized."""

from __future__ import annotations

import math
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import torch

from kforge import inline
from kforge.inline import configuration, cxx

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
}
LARGEST_ERROR = {"exp": 1.5, "log": 1.5, "expm1": 2.0, "log1p": 2.5, "tanh": 5.5, "erf": 7.0, "sigmoid": 3.0}
"""In units in the last place, as docs/building-blocks.md promises."""
SMALLEST = 2.5e-38
"""Smaller results may be zero."""
STRIDE = 2053
"""Every so manieth float32 number is tried: a prime, so that no pattern of bits is left out."""

KERNELS = "#include <kforge/math.h>\n" + "".join(
    f'extern "C" void apply_{name}(const float* __restrict__ x, float* __restrict__ y, int64_t n) {{\n'
    f"    #pragma omp simd\n    for (int64_t i = 0; i < n; ++i) y[i] = kforge::{name}(x[i]);\n}}\n"
    for name in FUNCTIONS
)
PAIRS = "".join(
    f'extern "C" void apply_{name}(const float* a, const float* b, float* y, int64_t n) {{\n'
    f"    for (int64_t i = 0; i < n; ++i) y[i] = kforge::{name}(a[i], b[i]);\n}}\n"
    for name in ("maximum", "minimum")
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> inline.Library:
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("builds")
        patch.setattr(configuration, "_current", configuration.Configuration(cache=cache))
        return inline.compile(KERNELS + PAIRS)


def applied(library: inline.Library, name: str, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    getattr(library, f"apply_{name}")(x, y, x.numel())
    return y


def numbers() -> torch.Tensor:
    """Numbers of every size and sign, with denormals, infinities and NaN."""
    bits = torch.arange(-(2**31), 2**31, STRIDE, dtype=torch.int64).to(torch.int32)
    ends = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        math.inf,
        -math.inf,
        math.nan,
        1e-45,
        -1e-45,
        1.1754944e-38,
        3.4028235e38,
        -3.4028235e38,
    ]
    near = [-86.6, -87.3, -103.9, 88.72, 88.73, 89.0, 8.9, 9.0, 3.88, 3.92, 0.5, -0.5, 16777216.0, 2.0**127]
    return torch.cat([bits.view(torch.float32), torch.tensor(ends + near)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_is_as_documented_for_all_numbers(library: inline.Library, name: str) -> None:
    x = numbers()
    got, exact = applied(library, name, x), FUNCTIONS[name](x.double())
    rounded = exact.float()
    assert torch.equal(got.isnan(), exact.isnan()), "NaN for NaN and outside the domain, and nowhere else"
    ends = rounded.isinf()
    off = got[ends] != rounded[ends]  # at the end of the range a result may be rounded to infinity, or just not
    assert bool((exact[ends][off].abs() < 3.41e38).all())
    inside = ~(exact.isnan() | ends)
    result, truth = got[inside].double(), exact[inside]
    # of NaN neighbours there are none, so a unit is the distance to the next number away from zero
    unit = torch.nextafter(rounded[inside].abs(), torch.tensor(math.inf)).double() - rounded[inside].abs().double()
    error = (result - truth).abs()
    visible = truth.abs() >= SMALLEST
    assert float((error[visible] / unit[visible]).max()) <= LARGEST_ERROR[name]
    assert float(error[~visible].max()) <= SMALLEST


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("exp", -math.inf, 0.0), ("exp", 0.0, 1.0), ("exp", -200.0, 0.0), ("exp", 100.0, math.inf),
        ("log", 0.0, -math.inf), ("log", -0.0, -math.inf), ("log", 1.0, 0.0), ("log", math.inf, math.inf),
        ("log", -1.0, math.nan), ("log", -math.inf, math.nan),
        ("expm1", -math.inf, -1.0), ("expm1", 1e-20, 1e-20), ("expm1", 0.0, 0.0),
        ("log1p", -1.0, -math.inf), ("log1p", -2.0, math.nan), ("log1p", 1e-20, 1e-20),
        ("tanh", math.inf, 1.0), ("tanh", -50.0, -1.0), ("tanh", 1e-45, 1e-45),
        ("erf", math.inf, 1.0), ("erf", -50.0, -1.0), ("erf", 0.0, 0.0),
        ("sigmoid", -math.inf, 0.0), ("sigmoid", math.inf, 1.0), ("sigmoid", 0.0, 0.5), ("sigmoid", -1e30, 0.0),
    ],
)  # fmt: skip
def test_ends_are_exact(library: inline.Library, name: str, x: float, expected: float) -> None:
    got = applied(library, name, torch.tensor([x]))
    assert torch.equal(got, torch.tensor([expected])) or (math.isnan(expected) and bool(got.isnan()))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_keep_nan_as_torch_does(library: inline.Library, name: str) -> None:
    a, b = torch.meshgrid(*[torch.tensor([1.0, -2.0, math.nan, math.inf, -math.inf])] * 2, indexing="ij")
    a, b = a.reshape(-1).contiguous(), b.reshape(-1).contiguous()
    y = torch.empty_like(a)
    getattr(library, f"apply_{name}")(a, b, y, y.numel())
    assert torch.equal(y.nan_to_num(7e7), getattr(torch, name)(a, b).nan_to_num(7e7))


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_loops_over_them_are_vectorized(compiler: str, tmp_path: Path) -> None:
    """By the compilers that are installed, for this machine's processor and without -ffast-math."""
    command = shutil.which(compiler)
    if command is None:
        assert compiler not in cxx.find_compiler(), "at least one compiler is here"
        return
    (tmp_path / cxx.SOURCE).write_text(KERNELS)
    told = ("-Rpass=loop-vectorize",) if "clang" in compiler else ("-fopt-info-vec-optimized",)
    native = [flag.replace("-march=native", "-mcpu=native") for flag in cxx.FLAGS] if "clang" in compiler else cxx.FLAGS
    ran = subprocess.run(
        [command, *native, f"-I{cxx.HEADERS}", *told, "-c", cxx.SOURCE, "-o", "kernel.o"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    # a kernel is four lines, behind the line with the header
    told_lines = [line.split(":")[1] for line in ran.stderr.splitlines() if line.startswith(cxx.SOURCE)]
    assert {(int(line) - 2) // 4 for line in told_lines} == set(range(len(FUNCTIONS))), ran.stderr[-2000:]


def test_a_changed_header_is_compiled_anew() -> None:
    assert "namespace kforge" in cxx._headers("#include <kforge/math.h>\n")
    assert cxx._headers("#include <cmath>\n// <kforge/math.h>\n#include <kforge/other.h>\n") == ""
