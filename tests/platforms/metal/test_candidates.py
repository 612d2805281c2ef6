"""Programs as models write them for a Mac, judged on the emulator unchanged."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunKforge

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="needs a machine that is not a Mac")

PROBLEM = """\
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.randn(6, 80)]

def get_init_inputs():
    return []
"""
PROGRAM = '''\
import torch
import torch.nn as nn

METAL_SOURCE = """
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void softmax_rows(device const T* input [[buffer(0)]],
                         device T* output [[buffer(1)]],
                         constant uint& width [[buffer(2)]],
                         uint tid [[thread_position_in_threadgroup]],
                         uint row [[threadgroup_position_in_grid]],
                         uint size [[threads_per_threadgroup]]) {
    threadgroup float shared[256];
    device const T* in = input + row * width;
    float best = -INFINITY;
    for (uint i = tid; i < width; i += size) best = max(best, float(in[i]));
    shared[tid] = best;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = size / 2; s > 0; s >>= 1) {
        if (tid < s) shared[tid] = max(shared[tid], shared[tid + s]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    best = shared[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0f;
    for (uint i = tid; i < width; i += size) total += precise::exp(float(in[i]) - best);
    shared[tid] = total;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = size / 2; s > 0; s >>= 1) {
        if (tid < s) shared[tid] += shared[tid + s];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i = tid; i < width; i += size) output[row * width + i] = T(precise::exp(float(in[i]) - best) / shared[0]);
}

template [[host_name("softmax_float")]] kernel void softmax_rows<float>(
    device const float*, device float*, constant uint&, uint, uint, uint);
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lib = torch.mps.compile_shader(METAL_SOURCE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, width = x.shape
        self.lib.softmax_float(x, out, width, threads=(rows * 256,), group_size=(256,))
        torch.mps.synchronize()
        return out
'''
RACE = PROGRAM.replace(
    "    best = shared[0];\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n", "    best = shared[0];\n"
)
BEYOND = PROGRAM.replace("output[row * width + i] =", "output[row * width + i + 1] =")
WRONG_TYPE = PROGRAM.replace("float best = -INFINITY", "double best = -INFINITY")


def line_of(program: str, text: str) -> int:
    """The line of the Metal source, which begins inside the program, that holds this text."""
    source = program.partition('"""')[2].partition('"""')[0]
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("program", "state", "said", "at"),
    [
        (PROGRAM, "correct", "", ""),
        (RACE, "runtime_error", "missing barrier", "best = shared[0]"),
        (BEYOND, "runtime_error", "out of bounds", "output[row * width + i + 1]"),
        (WRONG_TYPE, "compilation_failure", "double", "double best"),
    ],
    ids=["right", "a barrier is missing", "out of bounds", "no double in Metal"],
)
def test_a_program_for_a_mac_is_judged_by_the_emulator(
    kforge_in_process: RunKforge, tmp_path: Path, program: str, state: str, said: str, at: str
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "program.py").write_text(program)
    ran = kforge_in_process("eval", "problem.py", "program.py", "-p", "metal", "--json")
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["state"] == state, document
    assert "emulated" in document["labels"]
    assert "speedup" not in document
    if state != "correct":
        assert said in document["reason"] + document.get("log", "")
        assert f":{line_of(program, at)}" in document["reason"] + document.get("log", "")
