"""compute-sanitizer through `kforge eval --sanitize`.

Kernels whose outputs are right and whose only fault is one that a tool must find, and the programs written by hand,
which are clean under all four.
"""

import json
from pathlib import Path

import pytest

from kforge import platforms
from kforge.platforms import NoSanitizer, compute_sanitizer

CANDIDATES = Path(__file__).parent / "candidates"
pytestmark = pytest.mark.device("cuda")

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.randn(256, 1000)]

def get_init_inputs():
    return [1000]
"""

PROGRAM = '''
import torch
from torch import nn

from kforge import inline

library = inline.compile(r"""
extern "C" __global__ void scale(const float* x, const float* weight, const float* scratch, float* out, int n, int m) {{
    __shared__ float tile[256];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float odd = 0.0f;
    {bug}
    if (i < n) out[i] = odd == 1234.5f ? 0.0f : x[i] * weight[i % m];
}}
""", "cuda")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        out, scratch = torch.empty_like(x), torch.empty_like(x)
        library.scale(x, self.weight, scratch, out, x.numel(), x.shape[1], threads=x.numel(), group_size=256)
        return out
'''

BUGS = {
    "memcheck": ("if (i == 0) odd = x[n];", "Invalid __global__ read of size 4 bytes"),
    "initcheck": ("if (i < n) odd = scratch[i];", "Uninitialized __global__ memory read of size 4 bytes"),
    "synccheck": ("if (threadIdx.x < 100) __syncthreads();", "Barrier error detected"),
    "racecheck": ("tile[threadIdx.x] = i; odd = tile[(threadIdx.x + 32) % 256];", "Race reported between"),
}


@pytest.fixture(autouse=True)
def _there_is_one():
    found = platforms.find("cuda").adapter.sanitizers()
    if isinstance(found, NoSanitizer):
        pytest.skip(found.reason)


def sanitized(kforge, problem, candidate, platform="cuda"):
    """What `kforge eval --sanitize` says about a program that is judged correct."""
    ran = kforge("eval", problem, candidate, "-p", platform, "--sanitize", "--json")
    said = json.loads(ran.stdout)
    assert said["state"] == "correct", said
    return ran.status, said["sanitizer"]


@pytest.mark.slow
@pytest.mark.parametrize("tool", compute_sanitizer.TOOLS)
def test_a_planted_bug_is_found_by_its_tool_and_its_line_is_quoted(tool, kforge, tmp_path):
    bug, words = BUGS[tool]
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(PROGRAM.format(bug=bug))
    status, outcome = sanitized(kforge, tmp_path / "problem.py", tmp_path / "candidate.py")
    assert outcome["state"] == "finding", outcome
    assert status == 1
    assert outcome["sanitizer"].endswith(tool)
    assert outcome["failure"]["reason"].startswith(words)
    assert "in scale at kernel.cu:" in outcome["failure"]["reason"]
    assert outcome["failure"]["log"].endswith(bug)
    assert "0x" not in outcome["failure"]["log"]


@pytest.mark.slow
def test_without_a_bug_all_four_tools_find_it_clean(kforge, tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(PROGRAM.format(bug=""))
    status, outcome = sanitized(kforge, tmp_path / "problem.py", tmp_path / "candidate.py")
    assert outcome["state"] == "clean", outcome
    assert status == 0
    assert all(tool in outcome["sanitizer"] for tool in compute_sanitizer.TOOLS), outcome
    assert outcome["not_run"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "candidate", sorted(CANDIDATES.glob("*/with_*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_the_programs_written_by_hand_are_clean(candidate, kforge):
    platform = candidate.stem.removeprefix("with_")
    status, outcome = sanitized(kforge, candidate.with_name("problem.py"), candidate, platform)
    assert outcome["state"] == "clean", outcome
    assert status == 0


@pytest.mark.slow
def test_a_program_without_kernels_is_not_called_clean(kforge, tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(PROBLEM.replace("class Model", "class ModelNew"))
    _, outcome = sanitized(kforge, tmp_path / "problem.py", tmp_path / "candidate.py")
    assert outcome["state"] == "unavailable"
    assert outcome["reason"].startswith("it has no kernel of its own")
