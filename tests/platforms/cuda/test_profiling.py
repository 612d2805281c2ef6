"""What the digest must say about programs written by hand, and why: a person's judgement, on a device.

Counters are taken by Nsight Compute as a user would do it, outside the sandbox, and imported; whether it also works
inside depends on the driver, and the judge's profile says which it was.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.platforms import NoProfiler
from kforge.platforms.nvidia import nsight
from kforge.profiling import digest_of_export, exports
from kforge.profiling.rows import IDLE
from kforge.records import Candidate, EvaluationPolicy

CANDIDATES = Path(__file__).parent / "candidates"

# larger than the L2 cache, where the candidates' own sizes are not: then there is no doubt about what is busy
JUDGEMENTS = {
    # read once and written once, but element by element, with an exponential and a division each: on an H200 memory was
    # busy for 79 % of the time, L2 for 74 to 88 % and issue slots for 78 to 84 %. Whichever is on top, it is right
    "softmax": (["ROWS=32768"], ("memory bound", "instruction bound")),
    # the same with rows in registers and loads of 16 bytes, which must not be taken for scattered ones
    "layer_norm": (["ROWS=65536"], "memory bound"),
    # erff costs some arithmetic, but 16 bytes in and out for four of them cost more
    "gelu_bias": (["ROWS=32768"], "memory bound"),
    # 320 tiles for 132 multiprocessors with room for six each: no unit is busy, there is too little to do
    "matmul": ([], "latency bound: too little parallelism"),
}

CALL = """
import runpy, sys, torch
problem, candidate = runpy.run_path(sys.argv[1]), runpy.run_path(sys.argv[2])
model = candidate["ModelNew"](*problem["get_init_inputs"]()).cuda()
inputs = [x.cuda() for x in problem["get_inputs"]()]
with torch.no_grad():
    model(*inputs)
    torch.cuda.synchronize()
    with torch.cuda.profiler.profile():
        model(*inputs)
        torch.cuda.synchronize()
"""


def counted(problem: str, candidate: str, folder: Path):
    """The export of one call; skipped where Nsight Compute cannot count for us."""
    command = nsight.find_command("ncu")
    if command is None:
        pytest.skip("ncu is not installed")
    (folder / "problem.py").write_text(problem)
    (folder / "candidate.py").write_text(candidate)
    run = [*nsight.counting(command), sys.executable, "-c", CALL, "problem.py", "candidate.py"]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if "ERR_NVGPUCTRPERM" in done.stdout:
        pytest.skip("the driver gives no counters to this user")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return exports.read(done.stdout)


@pytest.mark.slow
@pytest.mark.device("cuda")
@pytest.mark.parametrize("name", sorted(JUDGEMENTS))
def test_the_bottleneck_of_a_program_written_by_hand(name, tmp_path):
    overrides, judgement = JUDGEMENTS[name]
    problem = problems.load(CANDIDATES / name / "problem.py", overrides)
    export = counted(problem.source, (CANDIDATES / name / "with_cuda.py").read_text(), tmp_path)
    assert len(export.kernels) == 1, "only the call is counted, and not what filled its inputs"
    made = digest_of_export(export, calls=1)
    assert made.bottleneck.startswith(judgement), made.digest_text
    figures = export.kernels[0].figures
    assert {
        "dram",
        "l2",
        "l1",
        "sm",
        "occupancy",
        "possible_occupancy",
        "conflicts",
        "local",
        "load_use",
    } <= figures.keys()
    assert figures["local"] == 0, "resources() say that none of them spills"


PROBLEM = """
import torch

def get_inputs():
    return [torch.randn(4096, 4096)]

def get_init_inputs():
    return []
"""
PROGRAM = """
import torch
from torch import nn
from kforge import inline

library = inline.compile(r'''
extern "C" __global__ void kernel(const float* x, float* out, int n) {{
    {body}
}}
''', "cuda")

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        library.kernel(x, out, x.shape[0], threads=x.numel(), group_size=256)
        return out
"""
SPOILED = {
    # neighbouring threads read addresses that are a whole row apart
    "uncoalesced access: loads": """
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    out[i] = x[(i % n) * n + i / n];
    """,
    # all threads of a warp read the same bank, at different addresses
    "shared memory bank conflicts": """
    __shared__ float tile[32 * 256];
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    for (int k = 0; k < 32; ++k) tile[k * 256 + threadIdx.x] = x[i] + k;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 256; ++k) sum += tile[(threadIdx.x * 32 + k) % (32 * 256)];
    out[i] = sum;
    """,
}


@pytest.mark.slow
@pytest.mark.device("cuda")
@pytest.mark.parametrize("judgement", sorted(SPOILED))
def test_the_bottleneck_of_a_program_that_was_spoiled_on_purpose(judgement, tmp_path):
    export = counted(PROBLEM, PROGRAM.format(body=SPOILED[judgement]), tmp_path)
    made = digest_of_export(export, calls=1)
    assert made.bottleneck.startswith(judgement), made.digest_text


@pytest.fixture(scope="module")
def judge(tmp_path_factory, clean_environment):
    cache = tmp_path_factory.mktemp("judge")
    with Judge(
        platforms.find("cuda"),
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment=clean_environment,
    ) as judge:
        yield judge


def profile(judge, overrides):
    problem = problems.load(CANDIDATES / "softmax" / "problem.py", overrides)
    source = (CANDIDATES / "softmax" / "with_cuda.py").read_text()
    return judge.profile(problem, Candidate(source=source, platform="cuda"))


@pytest.mark.slow
@pytest.mark.device("cuda")
def test_the_judge_climbs_as_high_as_it_may_and_says_why_not_higher(judge):
    found = profile(judge, ["ROWS=32768"])
    kernels = [spot.name for spot in found.hot_spots if spot.name != IDLE]
    assert kernels[0].startswith("softmax"), found.digest_text
    assert "Device idle" in found.digest_text
    assert found.bottleneck.startswith(JUDGEMENTS["softmax"][1]), found.digest_text
    if found.kernels:
        assert found.tool == "torch.profiler and Nsight Compute"
        assert [kernel.name for kernel in found.kernels] == ["softmax"], "set-up is not counted"
        assert found.kernels[0].launches == 1
    else:
        assert "Not profiled with Nsight Compute (" in found.digest_text
        rung = platforms.find("cuda").adapter.profilers()[0]
        if isinstance(rung, NoProfiler):
            assert rung.reason in found.digest_text


@pytest.mark.slow
@pytest.mark.device("cuda")
def test_a_call_of_a_few_microseconds_is_bound_by_its_launch(judge):
    """Eight rows keep the device busy for some microseconds; Python needs several times as long to launch them."""
    assert profile(judge, ["ROWS=8"]).bottleneck.startswith("launch bound")
