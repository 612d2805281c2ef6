"""The functions of <kforge/math.h> in WGSL, on the device at hand, and what `#include` means there."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from benchmarks.building_blocks import FUNCTIONS
from tests.inline.math_functions import PAIRS, build, check_all

from kforge import inline
from kforge.inline import CompileError
from kforge.inline.headers import wgsl

COPY = """
#include <kforge/math.h>
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn f(@builtin(global_invocation_id) t: vec3<u32>) {
    if (t.x < arrayLength(&x)) { out[t.x] = BODY; }
}
"""


def test_the_errors_are_as_documented() -> None:
    check_all(build("webgpu"), 14_387, {"expm1": 2.5, "tanh": 6.5, "erf": 8.5})


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_keep_nan_as_torch_does(name: str) -> None:
    library = inline.compile(COPY.replace("BODY", f"kforge_{name}(x[t.x], y[t.x])"), "webgpu")
    a, b = (each.reshape(-1).contiguous() for each in torch.meshgrid(*[torch.tensor(PAIRS)] * 2, indexing="ij"))
    out = torch.empty_like(a)
    copy.copy(library.f)(a, b, out, threads=a.numel())
    assert torch.equal(out.nan_to_num(7e7), getattr(torch, name)(a, b).nan_to_num(7e7))


def test_every_function_is_translated_whole() -> None:
    text = wgsl.functions()
    assert {f"kforge_{name}" for name in FUNCTIONS} < set(re.findall(r"^fn (\w+)\(", text, re.MULTILINE))
    assert not re.search(r"^#|\bKFORGE\(|\bKFORGE_FUNCTION\b|^ *(const|float|int|bool) ", text, re.MULTILINE)


def test_lines_keep_their_numbers() -> None:
    with pytest.raises(CompileError, match=r"kernel\.wgsl:8:\d+: error: "):
        inline.compile(COPY.replace("BODY", "nowhere"), "webgpu")


@pytest.mark.parametrize("line", ["#include <kforge/maths.h>", "#include <cmath>", '  # include "math.h" // mine'])
def test_any_other_include_is_an_error_with_its_line(line: str) -> None:
    with pytest.raises(
        CompileError, match=r"^kernel\.wgsl:2:\d: error: there is no header .*#include <kforge/math\.h>"
    ):
        inline.compile(f"// first\n{line}\n", "webgpu")


def test_a_source_without_an_include_stays_as_it_is() -> None:
    assert wgsl.expanded("fn f() {}\n// #include <kforge/math.h>\n", "kernel.wgsl").count("\n") == 2
