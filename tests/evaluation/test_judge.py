"""Real evaluations: three processes, real programs, and every way in which a program can fail."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.evaluation.sandbox.test_leftovers import DEEP, nest

from kforge import platforms, problems
from kforge.errors import EvaluationError, ProblemError
from kforge.evaluation import Judge
from kforge.records import (
    Candidate,
    Correct,
    Evaluation,
    EvaluationLimits,
    EvaluationPolicy,
    Mismatch,
    Problem,
    Rejected,
    RuntimeFailure,
)

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return [64]
"""

HEAD = """
import os, sys, time, torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.compute(x)

    def right(self, x):
        return torch.relu(self.linear(x))

    def compute(self, x):
"""


def program(body: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in body.strip().splitlines())


def written(folder: Path, source: str) -> Problem:
    path = folder / "problem.py"
    path.write_text(source)
    return problems.load(path)


def judge_with(cache: Path, call_deadline: float) -> Judge:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    null = platforms.find("null")
    return Judge(
        null,
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment=environment,
        limits=EvaluationLimits(call_deadline=call_deadline, timing_seconds=0.1, timing_cap=0.2),
    )


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judge_with(tmp_path_factory.mktemp("cache"), call_deadline=3.0) as judge:
        yield judge


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return written(tmp_path_factory.mktemp("problem"), PROBLEM)


def evaluate(judge: Judge, problem: Problem, source: str) -> Evaluation:
    return judge.evaluate(problem, Candidate(source=source, platform="null"))


def test_original_module_is_timed_but_not_compared_with_a_compiled_baseline(tmp_path: Path) -> None:
    """Cause: half a minute of compiling for a program that is reported as no kernel, without a speedup."""
    problem = written(tmp_path, PROBLEM)
    candidate = Candidate(source=program("return self.right(x)"), platform="null")
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=True),
        cache=tmp_path / "cache",
        environment=dict(os.environ),
        limits=EvaluationLimits(timing_seconds=0.5),
    ) as judge:
        evaluation = judge.evaluate(problem, candidate, is_original=True)
    assert isinstance(evaluation.verdict, Correct)
    assert [each.baseline for each in evaluation.verdict.timing.comparisons] == ["eager"]
    assert evaluation.receipt.unavailable == {"compile": "it is not measured for the original module"}


def test_a_right_program_is_correct_and_timed(judge: Judge, problem: Problem) -> None:
    evaluation = evaluate(judge, problem, program("return self.right(x)"))
    assert isinstance(evaluation.verdict, Correct)
    assert evaluation.verdict.cases == 26
    assert evaluation.verdict.max_error <= evaluation.verdict.tolerance
    assert [c.baseline for c in evaluation.verdict.timing.comparisons] == ["eager"]
    assert len(evaluation.receipt.samples["candidate"]) == evaluation.verdict.timing.pairs
    assert set(evaluation.receipt.stages) >= {"build", "verify", "time"}
    assert evaluation.receipt.candidate == Candidate(source=program("return self.right(x)"), platform="null").digest


def test_facts_of_the_device_are_reported_and_measured(judge: Judge) -> None:
    facts = judge.facts()
    assert facts.peaks is not None
    assert facts.device == facts.peaks.device == judge.device()
    rows = {fact.name: fact.text for fact in facts.facts}
    assert rows["Processor"] == facts.device
    assert rows["Memory"].endswith("B/s (all threads)")
    assert judge.peaks().bytes_per_second >= facts.peaks.bytes_per_second, "rates never fall"


def test_a_program_that_does_thirty_times_the_work_is_slower(judge: Judge, problem: Problem) -> None:
    evaluation = evaluate(judge, problem, program("for _ in range(30): y = self.right(x)\nreturn y"))
    assert isinstance(evaluation.verdict, Correct)
    (comparison,) = evaluation.verdict.timing.comparisons
    if comparison.doubt is None:
        assert comparison.speedup.median < comparison.speedup.high < 0.5
    # where other processes had a share of this machine meanwhile, nothing is claimed
    assert comparison.finding == ("slower" if comparison.doubt is None else "cannot tell")


@pytest.mark.parametrize(
    ("body", "fault", "words"),
    [
        ("raise ValueError('no good')", "raised", "ValueError: no good"),
        ("sys.exit(0)", "raised", "SystemExit"),
        ("os._exit(0)", "died", "status 0"),
        ("os.kill(os.getpid(), 11)", "died", "SIGSEGV"),
        ("import ctypes; ctypes.string_at(0)", "died", "SIGSEGV"),
        ("os.kill(os.getpid(), 40)", "died", "killed by signal 40"),
        ("while True: pass", "timed_out", "within 3 s"),
        ("if self.calls > 30: os._exit(3)\nreturn self.right(x)", "died", "status 3"),
        ("return object()", "raised", "cannot be sent"),
    ],
)
def test_timed_out_died_and_raised_are_kept_apart(
    judge: Judge, problem: Problem, body: str, fault: str, words: str
) -> None:
    verdict = evaluate(judge, problem, program(body)).verdict
    assert isinstance(verdict, RuntimeFailure)
    assert verdict.fault == fault
    assert words in verdict.reason


def test_the_log_of_a_raise_shows_the_programs_own_lines(judge: Judge, problem: Problem) -> None:
    verdict = evaluate(judge, problem, program("y = 1\nraise ValueError('no good')")).verdict
    assert isinstance(verdict, RuntimeFailure)
    assert "candidate.py" in verdict.log
    assert "raise ValueError('no good')" in verdict.log
    assert "kforge/evaluation" not in verdict.log


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("return torch.zeros(32, 64)", "numerical"),
        ("return x.clone()", "numerical"),
        ("return self.right(x).double()", "dtype"),
        ("return self.right(x)[:, :-1]", "shape"),
        ("return [self.right(x)]", "structure"),
        ("return None", "structure"),
        ("return torch.zeros(4096, 4096)", "shape"),
        ("return self.right(x.half().float())", "numerical"),
        ("y = self.right(x)\ny[-1, -1] += 0.01\nreturn y", "numerical"),
        # right for the distribution of the problem, wrong for another one
        ("return self.right(x.clamp(-8, 8))", "numerical"),
        # the answer of the first call, kept
        ("if self.calls == 1: self.kept = self.right(x)\nreturn self.kept.clone()", "numerical"),
    ],
)  # fmt: skip
def test_wrong_outputs_are_mismatches(judge: Judge, problem: Problem, body: str, kind: str) -> None:
    verdict = evaluate(judge, problem, program(body)).verdict
    assert isinstance(verdict, Mismatch)
    assert verdict.kind == kind
    assert (verdict.max_error is not None) == (kind == "numerical")


FORGE_FRAMES = """
import stat
for name in os.listdir('/proc/self/fd'):
    if os.path.exists(f'/dev/fd/{name}') and stat.S_ISSOCK(os.stat(f'/dev/fd/{name}').st_mode):
        os.write(int(name), b'x' * 100)
return self.right(x)
"""


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("y = self.right(x)\nx.zero_()\nreturn y", "input_modified"),
        ("return x", "output_aliases_input"),
        ("self.out = getattr(self, 'out', torch.empty(32, 64))\nreturn self.out.copy_(self.right(x))", "output_reused"),
        ("class Lazy(torch.Tensor): pass\nreturn self.right(x).as_subclass(Lazy)", "foreign_output"),
        (FORGE_FRAMES, "channel"),
    ],
)
def test_cheats_are_rejected(judge: Judge, problem: Problem, body: str, rule: str) -> None:
    verdict = evaluate(judge, problem, program(body)).verdict
    assert isinstance(verdict, Rejected), verdict
    assert verdict.rule == rule


def test_a_program_that_repacks_its_weights_is_judged_and_claims_nothing(judge: Judge, problem: Problem) -> None:
    source = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        layer = nn.Linear(width, width)
        self.packed = nn.Parameter(torch.cat([layer.weight.T, layer.bias[None]]))

    def forward(self, x):
        return torch.relu(torch.addmm(self.packed[-1], x, self.packed[:-1]))
"""
    evaluation = evaluate(judge, problem, source)
    assert isinstance(evaluation.verdict, Correct)
    assert "repacked_weights" in evaluation.labels
    assert evaluation.verdict.cases == 75
    for comparison in evaluation.verdict.timing.comparisons:
        assert comparison.doubt is not None
        assert "another form" in comparison.doubt


def test_state_that_changes_no_output_does_not_excuse_a_repacked_program(judge: Judge, tmp_path: Path) -> None:
    """In training mode a batch norm updates its statistics, and gives the same result for the same inputs."""
    layers, result = "nn.Linear(width, width); self.norm = nn.BatchNorm1d(width)", "self.norm(self.linear(x))"
    source = PROBLEM.replace("nn.Linear(width, width)", layers).replace("torch.relu(self.linear(x))", result)
    repacked = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        layer, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.packed = nn.Parameter(torch.cat([layer.weight.T, layer.bias[None]]))

    def forward(self, x):
        return self.norm(torch.addmm(self.packed[-1], x, self.packed[:-1]))
"""
    evaluation = evaluate(judge, written(tmp_path, source), repacked)
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
    assert "repacked_weights" in evaluation.labels
    assert "has_history" not in evaluation.labels


def test_weights_cached_at_construction_are_wrong_after_loading(judge: Judge, problem: Problem) -> None:
    source = HEAD.replace("self.calls = 0", "self.calls = 0; self.kept = self.linear.weight.detach().clone()")
    verdict = evaluate(
        judge, problem, source + "        return torch.relu(x @ self.kept.T + self.linear.bias)\n"
    ).verdict
    assert isinstance(verdict, Mismatch)


def test_running_statistics_are_compared_too(judge: Judge, tmp_path: Path) -> None:
    reference = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(16, 8)]

def get_init_inputs():
    return []
"""
    problem = written(tmp_path, reference)
    right = reference.replace("class Model", "class ModelNew")
    assert isinstance(evaluate(judge, problem, right).verdict, Correct)
    forgets = right.replace(
        "self.norm(x)", "torch.batch_norm(x, self.norm.weight, self.norm.bias, None, None, True, 0.1, 1e-5, False)"
    )
    verdict = evaluate(judge, problem, forgets).verdict
    assert isinstance(verdict, Mismatch)
    assert "running" in verdict.case or "num_batches" in verdict.case


def test_a_reference_that_follows_no_seed_is_refused(judge: Judge, tmp_path: Path) -> None:
    problem = written(
        tmp_path, PROBLEM.replace("torch.relu(self.linear(x))", "self.linear(x) * (__import__('time').time_ns() % 997)")
    )
    with pytest.raises(ProblemError, match="different outputs for the same inputs"):
        judge.describe(problem)


def test_a_worker_learns_nothing_from_its_environment(judge: Judge, problem: Problem) -> None:
    verdict = evaluate(judge, problem, program("raise ValueError(','.join(sorted(os.environ)))")).verdict
    names = set(verdict.reason.removeprefix("ValueError: ").split(","))  # type: ignore[union-attr]
    assert names <= {
        "PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS",
        "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "GOMP_SPINCOUNT", "KMP_BLOCKTIME",
        "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MIMALLOC_PURGE_DELAY",
    }  # fmt: skip


def test_a_child_of_a_killed_program_is_gone(judge: Judge, problem: Problem) -> None:
    mark = f"300.{secrets.randbits(48)}"  # the program cannot tell us its pid: it sees neither our files nor our pids
    body = f"""
import subprocess
subprocess.Popen(['sleep', '{mark}'])
while True: pass
"""
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(lambda: evaluate(judge, problem, program(body)).verdict)
        while not running(mark) and not verdict.done():
            time.sleep(0.02)
        assert running(mark)
        assert verdict.result().state == "runtime_error"
    assert not running(mark)


def running(mark: str) -> bool:
    """Whether some process of this machine has this word on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                return True
    return False


def test_a_lost_referee_is_said_and_replaced(judge: Judge, problem: Problem) -> None:
    judge.describe(problem)
    referee = judge._referee
    assert referee is not None
    os.kill(referee.pid, signal.SIGKILL)
    with pytest.raises(EvaluationError, match="the referee was killed by SIGKILL"):
        judge.evaluate(problem, Candidate(source=program("return self.right(x)"), platform="null"))
    assert evaluate(judge, problem, program("return self.right(x)")).verdict.state == "correct"


def test_a_profile_is_a_page_with_a_roofline(judge: Judge, problem: Problem) -> None:
    profile = judge.profile(problem, Candidate(source=program("return self.right(x)"), platform="null"))
    assert profile.tool == "torch.profiler"
    assert any("addmm" in spot.name for spot in profile.hot_spots)
    assert profile.roofline.floor_seconds > 0
    assert "addmm" in profile.digest_text
    with pytest.raises(EvaluationError, match="cannot be profiled: runtime error: ValueError"):
        judge.profile(problem, Candidate(source=program("raise ValueError('x')"), platform="null"))


def test_workers_get_the_variables_that_the_manifest_names_and_no_others(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "3", "SECRET_TOKEN": "x"}
    with Judge(platforms.find("cuda"), cache=tmp_path, environment=environment) as judge:
        assert judge._setup.worker_environment == {"CUDA_VISIBLE_DEVICES": "3"}


def test_folders_left_in_the_temporary_folder_do_not_stop_the_next_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / "kforge-work-planted"
    nest(planted, DEEP)
    judge = judge_with(tmp_path / "cache", 5.0)
    assert not planted.exists()
    nest(next(tmp_path.glob("kforge-work-*")), DEEP)
    judge.close()
    assert list(tmp_path.glob("kforge-*")) == []
