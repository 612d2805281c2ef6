"""Programs written by hand: problems of four kinds with kernels in CUDA and in Triton.

Without a GPU the CUDA ones are built and the Triton ones interpreted; on one, all are run, verified and timed.
"""

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, Correct, EvaluationPolicy

CANDIDATES = Path(__file__).parent / "candidates"
CUDA = sorted(CANDIDATES.glob("*/with_cuda.py"))
TRITON = sorted(CANDIDATES.glob("*/with_triton.py"))
SMALL = {"ROWS": "8", "COLUMNS": "200", "FEATURES": "128", "INNER": "48"}


def label(path):
    return f"{path.parent.name}-{path.stem}"


def test_they_are_all_there():
    assert [path.parent.name for path in CUDA] == ["gelu_bias", "layer_norm", "matmul", "softmax"]
    assert [path.parent.name for path in TRITON] == ["gelu_bias", "softmax"]


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("candidate", CUDA, ids=label)
def test_the_kernels_build_for_a_device_that_is_not_here(candidate):
    assert platforms.find("cuda").adapter.build_ahead(candidate) == ("sm_90",)


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("candidate", CUDA, ids=label)
def test_no_kernel_spills(candidate):
    library = runpy.run_path(str(candidate))["library"]
    for name in dir(library):
        kernel = getattr(library, name)
        if not hasattr(kernel, "resources"):
            kernel = kernel[8]
        assert (kernel.resources().local, kernel.resources().spill_stores) == (0, 0)


INTERPRET = """
import runpy, sys, torch
for files in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    problem, candidate = map(runpy.run_path, files)
    torch.manual_seed(0)
    model = problem["Model"](*problem["get_init_inputs"]())
    program = candidate["ModelNew"](*problem["get_init_inputs"]())
    program.load_state_dict(model.state_dict())
    with torch.no_grad():
        inputs = problem["get_inputs"]()
        ours, theirs = program(*inputs), model(*inputs)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=lambda said: f"{files}: {said}")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_the_triton_kernels_are_right_in_the_interpreter(tmp_path):
    """All in one process, which imports torch and Triton once."""
    files = []
    for number, candidate in enumerate(TRITON):
        sizes = problems.load(candidate.with_name("problem.py")).source
        for name, value in SMALL.items():
            sizes = "\n".join(
                f"{name} = {value}" if line.startswith(f"{name} = ") else line for line in sizes.splitlines()
            )
        (tmp_path / f"problem{number}.py").write_text(sizes)
        files += [str(tmp_path / f"problem{number}.py"), str(candidate)]
    assert files
    command = ["env", "TRITON_INTERPRET=1", sys.executable, "-c", INTERPRET, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.device("cuda")
@pytest.mark.parametrize("candidate", [*CUDA, *TRITON], ids=label)
def test_they_are_right_on_the_device(candidate):
    problem = runpy.run_path(str(candidate.with_name("problem.py")))
    program = runpy.run_path(str(candidate))["ModelNew"](*problem["get_init_inputs"]()).cuda()
    model = problem["Model"](*problem["get_init_inputs"]()).cuda()
    program.load_state_dict(model.state_dict())
    inputs = [x.cuda() + 0.5 for x in problem["get_inputs"]()]
    with torch.no_grad():
        ours = program(*inputs).double()
        exact = model.double()(*(x.double() for x in inputs))
    error = (ours - exact).norm() / exact.norm()
    assert error < 1e-5


@pytest.mark.slow
@pytest.mark.device("cuda")
@pytest.mark.parametrize("candidate", [*CUDA, *TRITON], ids=label)
def test_the_judge_finds_them_correct(candidate, tmp_path, clean_environment):
    platform = platforms.find(candidate.stem.removeprefix("with_"))
    with Judge(
        platform,
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path / "judge",
        environment=clean_environment,
    ) as judge:
        problem = problems.load(candidate.with_name("problem.py"))
        evaluation = judge.evaluate(problem, Candidate(source=candidate.read_text(), platform=platform.name))
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
    assert "emulated" not in evaluation.labels


@pytest.mark.slow
@pytest.mark.device("cuda")
@pytest.mark.parametrize("mode", ["default", "max-autotune", "max-autotune-no-cudagraphs"])
def test_every_mode_of_the_compiled_baseline_is_measured(mode, tmp_path, clean_environment):
    """Replayed launches overwrite the outputs of the calls before: the worker must not stumble over that."""
    platform = platforms.find("cuda")
    candidate = CANDIDATES / "softmax" / "with_cuda.py"
    problem = problems.load(candidate.with_name("problem.py"), ("ROWS=1024",))
    with Judge(
        platform,
        EvaluationPolicy(compile_mode=mode),
        cache=tmp_path / "judge",
        environment=clean_environment,
    ) as judge:
        evaluation = judge.evaluate(problem, Candidate(source=candidate.read_text(), platform="cuda"))
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
    assert evaluation.receipt.unavailable == {}
    compared = evaluation.verdict.timing.against("compile")
    assert compared is not None
    assert f"torch.compile {mode}" in compared.identity
    assert evaluation.receipt.conditions.keys() >= {"before timing", "after timing"}
