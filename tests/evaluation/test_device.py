"""Evaluation as it is on a device: inputs appear in the device's memory, and outputs are read where they lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.errors import EvaluationError
from kforge.evaluation import Judge
from kforge.records import (
    Candidate,
    Correct,
    Evaluation,
    EvaluationLimits,
    EvaluationPolicy,
    Mismatch,
    Rejected,
    RuntimeFailure,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.records import Problem

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads the memory of another process")

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x, names):
        return torch.softmax(x * self.weight, -1), x.argmax(-1)

def get_inputs():
    return [torch.randn(32, 96), {"a": torch.randn(3)}]

def get_init_inputs():
    return [96]
"""
PROGRAM = PROBLEM.replace("class Model", "class ModelNew")
TIMED = """
import sys

def timed():
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "go":
        frame = frame.f_back
    return frame is not None
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    shared = tmp_path_factory.mktemp("device")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFORGE_TEST_DEVICE", str(shared))
        platform = platforms.load_folder(Path(__file__).parent / "device_of_files")
        environment = dict(os.environ)
        # without a border: a worker could not open the files of this device behind one
        with Judge(
            platform,
            EvaluationPolicy(compile_baseline=False, unsafe=True),
            cache=tmp_path_factory.mktemp("cache"),
            environment=environment,
            ladder=(),
            limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
        ) as judge:
            yield judge


@pytest.fixture
def evaluate(judge: Judge, tmp_path: Path) -> Callable[[str], Evaluation]:
    (tmp_path / "problem.py").write_text(PROBLEM)
    problem: Problem = problems.load(tmp_path / "problem.py")
    return lambda source: judge.evaluate(problem, Candidate(source=source, platform="files"))


def test_a_right_program_is_correct_and_timed(evaluate: Callable[[str], Evaluation]) -> None:
    evaluation = evaluate(PROGRAM)
    assert isinstance(evaluation.verdict, Correct), evaluation.verdict
    assert evaluation.verdict.cases >= 20
    assert "outputs_not_seen" not in evaluation.labels


@pytest.mark.parametrize(
    ("right", "wrong", "kind", "words"),
    [
        ("torch.softmax(x * self.weight, -1)", "torch.softmax(x, -1)", Mismatch, "error"),
        ("torch.softmax(x * self.weight, -1)", "x.mul_(self.weight).softmax(-1)", Rejected, "modifies an input"),
        ("x.argmax(-1)", "1 / 0", RuntimeFailure, "ZeroDivisionError"),
        ("x.argmax(-1)", "x.argmax(-1).to(torch.int32)", Mismatch, "int64"),
        ("torch.softmax(x * self.weight, -1)", "(x * self.weight).repeat(99, 99)", Mismatch, "shape"),
    ],
)
def test_a_wrong_one_is_not(
    evaluate: Callable[[str], Evaluation], right: str, wrong: str, kind: type, words: str
) -> None:
    verdict = evaluate(PROGRAM.replace(right, wrong)).verdict
    assert isinstance(verdict, kind), verdict
    assert words in verdict.reason


ODD = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        turned = torch.view_as_complex((x * 2).reshape(*x.shape[:-1], -1, 2))
        some = {"across": (x * 2).mT, "one": x.sum().expand(3), "none": (x * 2)[:0], "count": x.shape[0]}
        return {"turned": turned.conj(), **some}

def get_inputs():
    return [torch.randn(32, 96)]

def get_init_inputs():
    return []
"""


def test_outputs_of_every_layout_are_read(judge: Judge, tmp_path: Path) -> None:
    """As they lie, or copied where that is not what they mean: a conjugate is only marked as one."""
    (tmp_path / "problem.py").write_text(ODD)
    candidate = Candidate(source=ODD.replace("class Model", "class ModelNew"), platform="files")
    verdict = judge.evaluate(problems.load(tmp_path / "problem.py"), candidate).verdict
    assert isinstance(verdict, Correct), verdict
    turned = Candidate(source=candidate.source.replace("turned.conj()", "turned"), platform="files")
    assert isinstance(judge.evaluate(problems.load(tmp_path / "problem.py"), turned).verdict, Mismatch)


def test_only_the_timed_calls_being_wrong_is_seen(evaluate: Callable[[str], Evaluation]) -> None:
    late = TIMED + PROGRAM.replace("return torch.softmax", "x = x + 1e-2 * timed()\n        return torch.softmax")
    assert isinstance(evaluate(late.replace("x.argmax", "(x + 0).argmax")).verdict, Mismatch | Rejected)


WANTS_MEMORY = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x, names):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 is full.")
"""


def test_a_program_is_blamed_for_want_of_memory_only_where_there_was_enough(
    evaluate: Callable[[str], Evaluation],
) -> None:
    verdict = evaluate(WANTS_MEMORY).verdict
    assert isinstance(verdict, RuntimeFailure), verdict
    told = Path(os.environ["KFORGE_TEST_DEVICE"]) / "free"
    told.write_text("9000")
    try:
        with pytest.raises(EvaluationError, match=r"a call take .* GB, judging it takes up to .* end other programs"):
            evaluate(WANTS_MEMORY)
    finally:
        told.unlink()


def test_a_device_with_little_memory_judges_in_pieces(judge: Judge, tmp_path: Path) -> None:
    told = Path(os.environ["KFORGE_TEST_DEVICE"]) / "free"
    told.write_text(str(10**6))
    (tmp_path / "problem.py").write_text(LARGE)
    problem = problems.load(tmp_path / "problem.py")
    try:
        for program, kind in ((LARGE, Correct), (LARGE.replace("+ 1", "+ (x != x[-1, -1])"), Mismatch)):
            source = program.replace("class Model", "class ModelNew")
            evaluation = judge.evaluate(problem, Candidate(source=source, platform="files"))
            assert isinstance(evaluation.verdict, kind), evaluation.verdict
            assert "exact_in_pieces" in evaluation.labels
    finally:
        told.unlink()


LARGE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.randn(300, 100)]

def get_init_inputs():
    return []
"""


HIDES = """
import sys

shown = next(module for name, module in sys.modules.items() if name.endswith("worker.allocations"))
shown.ShownAllocations._holding = lambda self, address: None
"""


def test_memory_that_cannot_be_shared_is_named_as_the_cause(evaluate: Callable[[str], Evaluation]) -> None:
    verdict = evaluate(HIDES + PROGRAM).verdict
    assert isinstance(verdict, Rejected), verdict
    assert verdict.rule == "output_not_shared"
    assert "other processes cannot open" in verdict.reason
    assert "format is broken" not in verdict.reason


RINGS = """
    def forward(self, x, names):
        soft, most = torch.softmax(x * self.weight, -1), x.argmax(-1)
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "go":
            frame = frame.f_back
        if frame is None or not REUSES:
            return soft, most
        at = len(frame.f_locals["outputs"])
        if at == 0:
            self.rings = self.rings[::-1] if hasattr(self, "rings") else [[], []]
        ring = self.rings[0]
        if at == len(ring):
            ring.append(torch.empty_like(soft))
        return ring[at].detach().copy_(soft), most
"""


@pytest.mark.parametrize(("reuses", "kind"), [(True, Rejected), (False, Correct)])
def test_outputs_that_later_blocks_overwrite_are_found(
    evaluate: Callable[[str], Evaluation], reuses: bool, kind: type
) -> None:
    """Every second block writes to the same memory, so no two outputs of one block share any."""
    head, _, tail = PROGRAM.partition("    def forward(self, x, names):\n")
    rest = tail[tail.index("def get_inputs") :]
    verdict = evaluate("import sys\n" + head + RINGS.replace("REUSES", str(reuses)) + "\n" + rest).verdict
    assert isinstance(verdict, kind), verdict
    assert not isinstance(verdict, Rejected) or verdict.rule == "output_reused", verdict
