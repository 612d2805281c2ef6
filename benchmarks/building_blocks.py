"""Measures the functions of <kforge/math.h>: largest error over float32 numbers, and time beside the standard library.

    python benchmarks/building_blocks.py [--every N]

Every N-th float32 number is tried (61 by default; 1 takes about ten minutes). Both loops of a function are timed in
turn, in one process and on one thread, on numbers between -4 and 4, or between 0 and 4 for logarithms. The quickest
call of each counts.
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from typing import TYPE_CHECKING

import torch

from kforge import inline
from kforge.inline import cxx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FUNCTIONS = {
    "exp": (torch.exp, "std::exp(x[i])"),
    "expm1": (torch.expm1, "std::expm1(x[i])"),
    "log": (torch.log, "std::log(x[i])"),
    "log1p": (torch.log1p, "std::log1p(x[i])"),
    "tanh": (torch.tanh, "std::tanh(x[i])"),
    "erf": (torch.erf, "std::erf(x[i])"),
    "sigmoid": (torch.sigmoid, "1.0f / (1.0f + std::exp(-x[i]))"),
}
SMALLEST = 2.5e-38
"""Results below it may be zero, and are left out."""
PIECE = 1 << 22
ELEMENTS = 1 << 15
"""Numbers of one timed call: they and their results stay in a second-level cache."""
CALLS = 200


def kernel(name: str, expression: str) -> str:
    return (
        f'extern "C" void {name}(const float* __restrict__ x, float* __restrict__ y, int64_t n) {{\n'
        f"    #pragma omp simd\n    for (int64_t i = 0; i < n; ++i) y[i] = {expression};\n}}\n"
    )


def library() -> inline.Library:
    """Return both loops of every function: `own_NAME` and `std_NAME`."""
    own = "".join(kernel(f"own_{name}", f"kforge::{name}(x[i])") for name in FUNCTIONS)
    theirs = "".join(kernel(f"std_{name}", expression) for name, (_, expression) in FUNCTIONS.items())
    return inline.compile(f"#include <kforge/math.h>\n#include <cmath>\n{own}{theirs}")


def pieces(every: int) -> Iterator[torch.Tensor]:
    """Yield every so manieth float32 number, except NaN."""
    for begin in range(-(2**31), 2**31, PIECE * every):
        bits = torch.arange(begin, min(begin + PIECE * every, 2**31), every, dtype=torch.int64)
        numbers = bits.to(torch.int32).view(torch.float32)
        numbers = numbers[~numbers.isnan()].contiguous()
        if numbers.numel():
            yield numbers


def largest_error(
    apply: Callable[..., object], exact: Callable[[torch.Tensor], torch.Tensor], every: int
) -> tuple[float, float]:
    """Return the largest error in units in the last place, and the number where it is."""
    worst, at = 0.0, math.nan
    for x in pieces(every):
        y = torch.empty_like(x)
        apply(x, y, x.numel())
        truth = exact(x.double())
        size = truth.float().abs()
        unit = torch.nextafter(size, torch.tensor(math.inf)).double() - size.double()
        error = (y.double() - truth).abs() / unit
        error[~((truth.abs() >= SMALLEST) & size.isfinite())] = 0.0
        place = int(error.argmax())
        if error[place] > worst:
            worst, at = float(error[place]), float(x[place])
    return worst, at


def quickest(calls: tuple[Callable[[], object], ...]) -> list[float]:
    """Return the least seconds of each call, in turn."""
    best = [math.inf] * len(calls)
    for _ in range(CALLS):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=61)
    every = parser.parse_args().every
    built = library()
    print(f"{cxx.find_compiler()} {' '.join(cxx.FLAGS)}")
    print("| function | largest error (ulp) | at | ns an element | the standard library's | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, (exact, _) in FUNCTIONS.items():
        own, theirs = getattr(built, f"own_{name}"), getattr(built, f"std_{name}")
        error, at = largest_error(own, exact, every)
        x = torch.rand(ELEMENTS) * 8 - 4
        x = x.abs() if name.startswith("log") else x
        y = torch.empty_like(x)
        ours, std = quickest((partial(own, x, y, x.numel()), partial(theirs, x, y, x.numel())))
        per = 1e9 / ELEMENTS
        print(f"| {name} | {error:.2f} | {at:.6g} | {ours * per:.2f} | {std * per:.2f} | {std / ours:.1f}x |")


if __name__ == "__main__":
    main()
