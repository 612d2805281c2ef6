"""The functions of <kforge/math.h> in C++: their error over all numbers, right where numbers end, and vectorized."""

from __future__ import annotations

import math
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import torch
from benchmarks.building_blocks import FUNCTIONS, LANGUAGES
from tests.inline.math_functions import check, numbers

from kforge import inline
from kforge.inline import configuration, cxx, headers

if TYPE_CHECKING:
    from pathlib import Path

STRIDE = 2053
KERNELS = LANGUAGES["c++"].source()
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
    return LANGUAGES["c++"].launch(library, name, x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_is_as_documented_for_all_numbers(library: inline.Library, name: str) -> None:
    x = numbers(STRIDE)
    check(name, x, applied(library, name, x))


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
        ("silu", math.inf, math.inf), ("silu", -math.inf, math.nan), ("silu", -200.0, -0.0), ("silu", 20.0, 20.0),
        ("gelu", math.inf, math.inf), ("gelu", -math.inf, math.nan), ("gelu", 50.0, 50.0), ("gelu", -50.0, -0.0),
        ("gelu_tanh", 50.0, 50.0), ("gelu_tanh", -1e30, -0.0), ("gelu_tanh", -math.inf, math.nan),
        ("softplus", -math.inf, 0.0), ("softplus", math.inf, math.inf), ("softplus", 20.5, 20.5),
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
        [command, *native, f"-I{headers.FOLDER}", *told, "-c", cxx.SOURCE, "-o", "kernel.o"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    # a kernel is four lines, behind the line with the header
    told_lines = [line.split(":")[1] for line in ran.stderr.splitlines() if line.startswith(cxx.SOURCE)]
    assert {(int(line) - 2) // 4 for line in told_lines} == set(range(len(FUNCTIONS))), ran.stderr[-2000:]
