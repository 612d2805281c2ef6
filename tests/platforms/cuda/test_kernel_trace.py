"""Whose kernels a program runs, on a device: names as the profiler gives them, shares, and refusals."""

from pathlib import Path

import pytest
import torch

from kforge import inline, platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, EvaluationPolicy, Rejected

CORPUS = Path(__file__).parents[2] / "exploits"
LIBRARY = ["cuda_cublas_by_ctypes", "cuda_fig_leaf"]
OWN = ["cuda_own_stream", "cuda_persistent_grid", "cuda_scratch", "cuda_split_kernels", "cuda_transposed_output"]

SOURCE = r"""
namespace ours {
template <typename T> __global__ void twice(T* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
}
__global__ void thrice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 3; }
extern "C" __global__ void plain(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 4; }
"""


@pytest.mark.device("cuda")
def test_the_names_of_kernels_as_the_device_ran_them():
    library = inline.compile(SOURCE, "cuda")
    x = torch.ones(256, device="cuda")
    adapter = platforms.find("cuda").adapter

    def run():
        library.twice["float"](x, 256, threads=256)
        library.thrice(x, 256, threads=256)
        library.plain(x, 256, threads=256)
        (x[None] @ x[:, None]).relu_()
        x.clone()
        adapter.synchronize()

    run()
    seen = adapter.watch(run)
    owner = adapter.kernel_owners(f"SOURCE = {SOURCE!r}")
    own = {kernel.name for kernel in seen.kernels if owner(kernel.name) == "authored"}
    assert len(own) == 3, seen
    assert {owner(kernel.name) for kernel in seen.kernels} == {"authored", "library", "copy"}, seen
    assert 0 < seen.busy <= sum(kernel.seconds for kernel in seen.kernels) * 1.001


@pytest.fixture(scope="module", params=["library", "custom"])
def judge(request, tmp_path_factory, clean_environment):
    with Judge(
        platforms.find("cuda"),
        EvaluationPolicy(compile_baseline=False, track=request.param),
        cache=tmp_path_factory.mktemp("judge"),
        environment=clean_environment,
    ) as judge:
        yield judge


def evaluate(judge, path):
    source = path.read_text()
    name = next(line.partition(": ")[2] for line in source.splitlines() if line.startswith("# problem: "))
    problem = problems.load(CORPUS / "problems" / f"{name}.py")
    return judge.evaluate(problem, Candidate(source=source, platform="cuda"))


@pytest.mark.slow
@pytest.mark.device("cuda")
@pytest.mark.parametrize("name", LIBRARY)
def test_a_library_does_the_work(judge, name):
    found = evaluate(judge, CORPUS / "cheats" / "library" / f"{name}.py")
    assert found.receipt.trace is not None, found
    assert found.receipt.trace.unit == "nanoseconds"
    assert found.receipt.trace.authored_share < 0.5
    if found.receipt.track == "custom":
        assert isinstance(found.verdict, Rejected)
        assert found.verdict.rule == "library_does_the_work"
    else:
        assert found.correct is not None, found.verdict
        assert "library" in found.labels


@pytest.mark.slow
@pytest.mark.device("cuda")
@pytest.mark.parametrize("name", OWN)
def test_kernels_of_its_own_do(judge, name):
    found = evaluate(judge, CORPUS / "honest" / f"{name}.py")
    assert found.correct is not None, found.verdict
    assert {"library", "untraced"}.isdisjoint(found.labels), found.labels
    assert found.receipt.trace.authored_share > 0.9


@pytest.mark.slow
@pytest.mark.device("cuda")
def test_what_a_graph_replays_is_seen(judge):
    """A graph that was captured before the profiler began, of a library's kernel: no program of this track is right."""
    found = evaluate(judge, CORPUS / "honest" / "cuda_graph.py")
    if found.receipt.track == "custom":
        assert isinstance(found.verdict, Rejected)
    else:
        assert "library" in found.labels, found.labels
