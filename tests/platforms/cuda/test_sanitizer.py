"""compute-sanitizer.

Kernels whose outputs are right and whose only fault is one that a tool must find, and the programs written by hand,
which are clean under all four.
"""

import contextlib
import json
from pathlib import Path

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.platforms import NoSanitizer
from kforge.platforms.nvidia import compute_sanitizer
from kforge.records import Candidate, NotSanitized, SanitizedClean, SanitizerFinding

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


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory, clean_environment):
    """What the tools of a platform say about a program; one judge a platform, and no timing beside it."""
    with contextlib.ExitStack() as judges:
        known = {}

        def outcome(problem, source, platform="cuda"):
            if platform not in known:
                cache = tmp_path_factory.mktemp(platform)
                judge = Judge(platforms.find(platform), cache=cache, environment=clean_environment)
                known[platform] = judges.enter_context(judge)
            candidate = Candidate(source=source, platform=platform)
            return known[platform].sanitize(problems.load(problem), candidate).outcome

        yield outcome


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("tool", compute_sanitizer.TOOLS)
def test_a_planted_bug_is_found_by_its_tool_and_its_line_is_quoted(tool, sanitized, problem):
    bug, words = BUGS[tool]
    outcome = sanitized(problem, PROGRAM.format(bug=bug))
    assert isinstance(outcome, SanitizerFinding), outcome
    assert outcome.sanitizer.endswith(tool)
    assert outcome.failure.reason.startswith(words)
    assert "in scale at kernel.cu:" in outcome.failure.reason
    assert outcome.failure.log.endswith(bug)
    assert "0x" not in outcome.failure.log


@pytest.mark.slow
def test_without_a_bug_all_four_tools_find_it_clean(sanitized, problem):
    outcome = sanitized(problem, PROGRAM.format(bug=""))
    assert isinstance(outcome, SanitizedClean), outcome
    assert all(tool in outcome.sanitizer for tool in compute_sanitizer.TOOLS), outcome
    assert not outcome.not_run


@pytest.mark.slow
@pytest.mark.parametrize(
    "candidate", sorted(CANDIDATES.glob("*/with_*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_the_programs_written_by_hand_are_clean(candidate, sanitized):
    platform = candidate.stem.removeprefix("with_")
    outcome = sanitized(candidate.with_name("problem.py"), candidate.read_text(), platform)
    assert isinstance(outcome, SanitizedClean), outcome
    assert not outcome.not_run


@pytest.mark.slow
def test_a_program_without_kernels_is_not_called_clean(sanitized, problem):
    outcome = sanitized(problem, PROBLEM.replace("class Model", "class ModelNew"))
    assert isinstance(outcome, NotSanitized)
    assert outcome.reason.startswith("it has no kernel of its own")


@pytest.mark.slow
def test_the_command_says_it_and_fails(kforge, problem, tmp_path):
    bug, words = BUGS["memcheck"]
    (tmp_path / "candidate.py").write_text(PROGRAM.format(bug=bug))
    ran = kforge("eval", problem, tmp_path / "candidate.py", "-p", "cuda", "--sanitize", "--json")
    said = json.loads(ran.stdout)
    assert (ran.status, said["state"], said["sanitizer"]["state"]) == (1, "correct", "finding"), said
    assert said["sanitizer"]["failure"]["reason"].startswith(words)
