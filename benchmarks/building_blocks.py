"""Measures the functions of <kforge/math.h> in one language: the largest error over float32 numbers.

    python benchmarks/building_blocks.py [--language NAME] [--every N]

Every N-th float32 number is tried (61 by default; 1 takes about ten minutes in C++). For C++ the time is measured as
well, beside the standard library: both loops of a function are timed in turn, in one process and on one thread, on
numbers between -4 and 4, or between 0 and 4 for logarithms. The quickest call of each counts.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from kforge import inline
from kforge.inline import cxx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "softplus": functional.softplus,
}
STANDARD = {
    "sigmoid": "1.0f / (1.0f + std::exp(-x[i]))",
    "silu": "x[i] / (1.0f + std::exp(-x[i]))",
    "gelu": "0.5f * x[i] * (1.0f + std::erf(x[i] * 0.707106781f))",
    "gelu_tanh": "0.5f * x[i] * (1.0f + std::tanh(0.797884561f * (x[i] + 0.044715f * x[i] * x[i] * x[i])))",
    "softplus": "x[i] > 20.0f ? x[i] : std::log1p(std::exp(x[i]))",
}
"""C++ expressions for the functions that the standard library does not have under the same name."""
BY_ARGUMENT = ("gelu", "gelu_tanh")
"""Functions whose error is given in units in the last place of the argument, not of the result: where their results are
nearly zero, torch loses digits as well."""
SMALLEST = 2.5e-38
"""Smallest magnitude that is compared (see `scale`). Below it, a result may be zero."""
SMALLEST_OF = {"silu": 2.7e-37}
"""Smallest magnitude that is compared for single functions. silu returns zero below a larger magnitude, also in torch,
because exp(-x) in it is infinite."""
PIECE = 1 << 22
ELEMENTS = 1 << 15
"""Numbers of one timed call: arguments and results fit into a second-level cache."""
CALLS = 200


@dataclass(frozen=True)
class Language:
    """A language, with the source of a kernel `apply_NAME` that applies `CALL` to each element of a tensor."""

    kernel: str
    head: str = "#include <kforge/math.h>\n"
    prefix: str = "kforge::"
    """Prefix of the functions' names."""
    takes_count: bool = True

    def source(self) -> str:
        kernels = (self.kernel.replace("NAME", name).replace("CALL", f"{self.prefix}{name}") for name in FUNCTIONS)
        return self.head + "".join(kernels)

    def launch(self, library: inline.Library, name: str, x: torch.Tensor) -> torch.Tensor:
        """Run the kernel of a function, and return the result for each element. x and the result are in host memory."""
        x = x.cuda() if "__global__" in self.kernel else x
        y = torch.empty_like(x)
        threads = {} if "omp simd" in self.kernel else {"threads": x.numel()}
        getattr(library, f"apply_{name}")(x, y, *((x.numel(),) if self.takes_count else ()), **threads)
        return y.cpu()


CUDA = Language("""extern "C" __global__ void apply_NAME(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = CALL(x[i]);
}
""")
LANGUAGES = {
    "c++": Language("""extern "C" void apply_NAME(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    #pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = CALL(x[i]);
}
"""),
    "cuda": CUDA,
    "hip": CUDA,
    "metal": Language(
        "kernel void apply_NAME(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {\n"
        "    y[i] = CALL(x[i]);\n}\n",
        takes_count=False,
    ),
    "opencl": Language(
        """__kernel void apply_NAME(__global const float* x, __global float* y, int n) {
    const int i = get_global_id(0);
    if (i < n) y[i] = CALL(x[i]);
}
""",
        prefix="kforge_",
    ),
    "sycl": Language("""extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
void apply_NAME(const float* x, float* y, int n) {
    const int i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
    if (i < n) y[i] = CALL(x[i]);
}
"""),
    "webgpu": Language(
        """@compute @workgroup_size(256) fn apply_NAME(@builtin(global_invocation_id) t: vec3<u32>) {
    if (t.x < arrayLength(&x)) { y[t.x] = CALL(x[t.x]); }
}
""",
        head="#include <kforge/math.h>\n"
        "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
        "@group(0) @binding(1) var<storage, read_write> y: array<f32>;\n",
        prefix="kforge_",
        takes_count=False,
    ),
}


def standard() -> str:
    """Return kernels `apply_std_NAME` in C++ that call the standard library."""
    kernel = LANGUAGES["c++"].kernel.replace("apply_NAME", "apply_std_NAME")
    texts = ((name, STANDARD.get(name, f"std::{name}(x[i])")) for name in FUNCTIONS)
    return "".join(kernel.replace("NAME", name).replace("CALL(x[i])", text) for name, text in texts)


def pieces(every: int) -> Iterator[torch.Tensor]:
    """Yield every `every`-th float32 number except NaN, in tensors of at most PIECE numbers."""
    for begin in range(-(2**31), 2**31, PIECE * every):
        bits = torch.arange(begin, min(begin + PIECE * every, 2**31), every, dtype=torch.int64)
        numbers = bits.to(torch.int32).view(torch.float32)
        numbers = numbers[~numbers.isnan()].contiguous()
        if numbers.numel():
            yield numbers


def scale(name: str, x: torch.Tensor) -> torch.Tensor:
    """Return the magnitudes whose units in the last place measure an error: of the results, or of the arguments."""
    return x.double().abs() if name in BY_ARGUMENT else FUNCTIONS[name](x.double()).abs()


def errors(name: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the error of each result in units in the last place, and zero where the truth is too small or infinite."""
    truth, size = FUNCTIONS[name](x.double()), scale(name, x)
    near = size.float()
    unit = torch.nextafter(near, torch.tensor(math.inf)).double() - near.double()
    error = (y.double() - truth).abs() / unit
    error[~((size >= SMALLEST_OF.get(name, SMALLEST)) & truth.float().isfinite())] = 0.0
    return error


def largest_error(apply: Callable[[str, torch.Tensor], torch.Tensor], name: str, every: int) -> tuple[float, float]:
    """Return the largest error in units in the last place, and the argument at which it occurs."""
    worst, at = 0.0, math.nan
    for x in pieces(every):
        error = errors(name, x, apply(name, x))
        place = int(error.argmax())
        if not error[place] <= worst:
            worst, at = float(error[place]), float(x[place])
    return worst, at


def quickest(calls: tuple[Callable[[], object], ...]) -> list[float]:
    """Return the shortest time of each call in seconds. The calls take turns."""
    best = [math.inf] * len(calls)
    for _ in range(CALLS):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def times(library: inline.Library, name: str) -> tuple[float, float]:
    """Return the nanoseconds per element of kforge's function and of the standard library's."""
    x = torch.rand(ELEMENTS) * 8 - 4
    x = x.abs() if name.startswith("log") else x
    y = torch.empty_like(x)
    loops = (getattr(library, f"apply_{kind}{name}") for kind in ("", "std_"))
    ours, theirs = quickest(tuple(partial(loop, x, y, x.numel()) for loop in loops))
    return ours * 1e9 / ELEMENTS, theirs * 1e9 / ELEMENTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", choices=LANGUAGES, default="c++")
    parser.add_argument("--every", type=int, default=61)
    given = parser.parse_args()
    language, on_host = LANGUAGES[given.language], given.language == "c++"
    built = inline.compile(language.source() + (standard() if on_host else ""), given.language)
    if on_host:
        print(f"{cxx.find_compiler()} {' '.join(cxx.FLAGS)}")
    more = " ns an element | the standard library's | ratio |" if on_host else ""
    print(f"| function | largest error (ulp) | at |{more}")
    print(f"| --- | --- | --- |{' --- | --- | --- |' if on_host else ''}")
    for name in FUNCTIONS:
        error, at = largest_error(partial(language.launch, built), name, given.every)
        line = f"| {name} | {error:.2f} | {at:.6g} |"
        if on_host:
            ours, theirs = times(built, name)
            line += f" {ours:.2f} | {theirs:.2f} | {theirs / ours:.1f}x |"
        print(line, flush=True)


if __name__ == "__main__":
    main()
