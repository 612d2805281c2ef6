"""Measures how much faster a processor's matrix unit is than the library in single precision, and how exact.

    python benchmarks/matrix_unit.py

Both run on one thread, one after the other. Times are CPU seconds of that thread, so that other processes may use the
machine. Errors are the largest ones against double precision, relative to the output's RMS. The last line is one JSON
document.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from kforge import problems
from kforge.inline import configuration
from kforge.platforms import host
from kforge.problems.instance import instantiate
from kforge.smith.frontend.trace import trace
from kforge.smith.languages.cpp import Cpp
from kforge.smith.languages.cpp.plan import UNIT, CppPlan
from kforge.smith.program import write

SECONDS = 1.0
PRODUCT = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, left, right):
        return left @ right

def get_inputs():
    return [torch.randn({0}, {1}), torch.randn({1}, {2})]

def get_init_inputs():
    return []
"""
CONVOLUTION = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv{5}d({1}, {2}, {4}, padding={4} // 2)

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.randn({0}, {1}, *{3})]

def get_init_inputs():
    return []
"""
PRODUCTS = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (1000, 1111, 777), (4096, 128, 512))
CONVOLUTIONS = (
    (4, 32, 32, (32, 32), 3), (4, 64, 128, (28, 28), 3), (4, 96, 96, (32, 32), 1), (1, 8, 16, (20, 20, 20), 3),
    (8, 48, 48, (512,), 3),
)  # fmt: skip


def quartile(call: Any) -> float:
    """Return the lower quartile of a call's CPU seconds."""
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 4:
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return sorted(times)[len(times) // 4]


def measure(source: str, folder: Path) -> dict[str, float]:
    path = folder / "problem.py"
    path.write_text(source)
    instance = instantiate(problems.load(path))
    program: dict[str, Any] = {"__name__": "program"}
    text = write(instance.problem, trace(instance), Cpp(), CppPlan(matrix=3)).source
    exec(compile(text, "program.py", "exec"), program)  # noqa: S102 - the smith's program
    model, own = instance.make_model(), program["ModelNew"]()
    own.load_state_dict(model.state_dict())
    inputs = instance.inputs(0)
    with torch.no_grad():
        library = [model(*inputs), *(quartile(lambda: model(*inputs)) for _ in range(2))]
        ours = [own(*inputs), *(quartile(lambda: own(*inputs)) for _ in range(2))]
        exact = model.double()(*(each.double() for each in inputs))
    errors = [float((each[0] - exact).abs().max() / exact.square().mean().sqrt()) for each in (library, ours)]
    return {
        "library_ms": min(library[1:]) * 1e3, "own_ms": min(ours[1:]) * 1e3, "gain": min(library[1:]) / min(ours[1:]),
        "library_error": errors[0], "own_error": errors[1],
    }  # fmt: skip


def main() -> int:
    if UNIT not in host.features():
        print(f"this processor has no {UNIT}", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    sources = {f"{m} x {k} by {k} x {n}": PRODUCT.format(m, k, n) for m, k, n in PRODUCTS}
    for images, channels, out, sizes, window in CONVOLUTIONS:
        name = f"{window}-wide window over {images} x {channels} x {' x '.join(map(str, sizes))}, to {out}"
        sources[name] = CONVOLUTION.format(images, channels, out, sizes, window, len(sizes))
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        configuration.configure(cache=Path(folder) / "builds")
        for name, source in sources.items():
            found[name] = each = measure(source, Path(folder))
            print(
                f"{name}: {each['gain']:.2f}x ({each['library_ms']:.2f} to {each['own_ms']:.2f} ms), error "
                f"{each['library_error']:.1e} to {each['own_error']:.1e}"
            )
    print(json.dumps({"machine": host.describe(), "torch": torch.__version__, "threads": 1, "results": found}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
