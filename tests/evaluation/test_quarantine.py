"""A speedup over ten times is measured again before anyone is told; one that physics forbids is not told at all."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.busy_machine import give_up

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.quarantine import is_quarantined, replicate
from kforge.evaluation.reference.reference import Reference
from kforge.evaluation.timing.bandwidth_bound import bytes_that_matter
from kforge.problems.instance import instantiate
from kforge.records import (
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    EvaluationLimits,
    EvaluationPolicy,
    Interval,
    Mismatch,
    Problem,
    Receipt,
    Rejected,
    Timing,
)

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        for _ in range(1000):
            x = x + 0.0
        return x + x

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
HONEST = """
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
"""
SLOWER_LATER = """
import time
from torch import nn
from kforge.inline import configuration

mark = configuration.current().cache_folder.parent / "was_here"
later = mark.exists()
mark.touch()

class ModelNew(nn.Module):
    def forward(self, x):
        time.sleep(0.05 if later else 0)
        return x + x
"""
WRONG_LATER = SLOWER_LATER.replace("time.sleep(0.05 if later else 0)", "x = x * (1 + later)")

ADAPTER = """
from kforge import platforms
from kforge.records import EvaluationLimits, EvaluationPolicy, Peaks

class Adapter(platforms.Adapter):
    cache_bytes = 16

    def synchronize(self):
        pass

    def measure_peaks(self):
        return Peaks(device="a slow one", bytes_per_second=1e6, flops_per_second=1e9, wired_bytes_per_second={wired})
"""


def written(folder: Path, source: str) -> Problem:
    path = folder / "problem.py"
    path.write_text(source)
    return problems.load(path)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    cache = tmp_path_factory.mktemp("cache")
    environment = {"PATH": os.environ["PATH"]}
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        yield judge


def claimed(speedup: float) -> Evaluation:
    """An evaluation with this speedup, give or take a tenth."""
    interval = Interval(median=speedup, low=0.9 * speedup, high=1.1 * speedup)
    eager = Comparison(baseline="eager", identity="", seconds=1.0, speedup=interval)
    receipt = Receipt(
        problem="p", candidate="c", platform="null", precision="strict", seed="s", device="d", versions={},
        sandbox="none", timer="clock",
    )  # fmt: skip
    timing = Timing(seconds=interval, comparisons=(eager,), pairs=20)
    return Evaluation(verdict=Correct(max_error=0.0, tolerance=1e-5, cases=20, timing=timing), receipt=receipt)


def disturbed(evaluation: Evaluation) -> Evaluation:
    """The same, of a busy machine. Cause: such a repetition was counted as if it confirmed the first one."""
    assert evaluation.correct is not None
    timing = evaluation.correct.timing
    comparisons = tuple(each.model_copy(update={"doubt": "a busy machine"}) for each in timing.comparisons)
    timing = timing.model_copy(update={"comparisons": comparisons})
    return evaluation.model_copy(update={"verdict": evaluation.correct.model_copy(update={"timing": timing})})


DISTURBED = disturbed(claimed(20))
WRONG = claimed(20).model_copy(update={"verdict": Mismatch(kind="numerical", reason="off")})


@pytest.mark.parametrize(
    ("again", "states"),
    [
        ([claimed(20), claimed(25), claimed(18)], ("correct", ("replicated",), "faster")),
        ([claimed(20), claimed(9)], ("correct", ("quarantined",), "cannot tell")),
        ([claimed(20), WRONG], ("mismatch", (), None)),
        ([DISTURBED, claimed(20), DISTURBED, claimed(25), claimed(18)], ("correct", ("replicated",), "faster")),
        ([claimed(20), claimed(20), *[DISTURBED] * 3], ("correct", ("quarantined",), "cannot tell")),
        ([DISTURBED, WRONG], ("mismatch", (), None)),
    ],
    ids=["stays", "does not stay", "wrong later", "stays where undisturbed", "too few undisturbed", "disturbed, wrong"],
)
def test_what_is_made_of_repetitions(again: list[Evaluation], states: tuple[str, tuple[str, ...], str | None]) -> None:
    repetitions = iter(again)
    found = replicate(claimed(20), lambda: next(repetitions))
    finding = found.correct.timing.comparisons[0].finding if found.correct else None
    assert (found.verdict.state, found.labels, finding) == states
    assert next(repetitions, None) is None


def test_what_is_in_doubt_already_is_not_repeated_more_often() -> None:
    repetitions = iter([DISTURBED] * 3)
    found = replicate(DISTURBED, lambda: next(repetitions))
    assert found.labels == ("quarantined",)
    assert next(repetitions, None) is None


def test_only_what_is_surely_over_ten_times_is_measured_again() -> None:
    assert [is_quarantined(each) for each in (claimed(11), claimed(12), WRONG)] == [False, True, False]


TRIES = 10
"""A program that is a hundred times as fast is surely over ten times as fast, unless something else uses the processors
in half of its few timed blocks: then it is evaluated again, as another program. A machine that is itself a guest does
not always see what disturbs it."""


def evaluate(judge: Judge, folder: Path, source: str) -> Evaluation:
    """The first evaluation that was measured again, or that found the program wrong."""
    problem = written(folder, PROBLEM)
    for number in range(TRIES):
        program = source.replace("was_here", f"was_here_{number}")
        found = judge.evaluate(problem, Candidate(source=program, platform="null"))
        if found.correct is None or is_quarantined(found):
            return found
    return give_up(f"none of {TRIES} evaluations was surely over ten times as fast; the last: {found.verdict}")


@pytest.mark.quiet
def test_a_large_speedup_that_stays_is_believed(judge: Judge, tmp_path: Path) -> None:
    for _ in range(TRIES):
        found = evaluate(judge, tmp_path, HONEST)
        assert found.correct is not None
        doubt = found.correct.timing.comparisons[0].doubt
        if "quarantined" not in found.labels:
            break  # otherwise something used the processors during a repetition
    else:
        give_up(str(doubt))
    assert "replicated" in found.labels or "busy_machine" in found.labels
    assert doubt is None or "busy_machine" in found.labels


@pytest.mark.quiet
@pytest.mark.volume  # that a repetition is a fresh process's is seen below, and what is made of it above
def test_a_large_speedup_that_does_not_stay_is_in_doubt(judge: Judge, tmp_path: Path) -> None:
    found = evaluate(judge, tmp_path, SLOWER_LATER)
    assert found.correct is not None
    assert "quarantined" in found.labels
    assert found.correct.timing.comparisons[0].finding == "cannot tell"


@pytest.mark.quiet
def test_what_is_wrong_when_it_is_measured_again_is_wrong(judge: Judge, tmp_path: Path) -> None:
    found = evaluate(judge, tmp_path, WRONG_LATER)
    assert found.verdict.state == "mismatch"


def evaluated_where_memory_is_slow(tmp_path: Path, wired: float | None) -> Evaluation:
    """On a device whose peak was measured as a megabyte a second."""
    folder = tmp_path / "platforms" / "slow"
    shutil.copytree(platforms.find("null").folder, folder)
    manifest = (folder / "platform.toml").read_text()
    (folder / "platform.toml").write_text(manifest.replace('name = "null"', 'name = "slow"'))
    (folder / "adapter.py").write_text(ADAPTER.format(wired=wired))
    slow = platforms.find("slow", (folder.parent,))
    problem = written(tmp_path, PROBLEM.replace("range(1000)", "range(3)"))  # not so fast that it is measured again
    environment = {"PATH": os.environ["PATH"]}
    with Judge(
        slow,
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path / "cache",
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        return judge.evaluate(problem, Candidate(source=HONEST, platform="slow"))


@pytest.mark.parametrize("wired", [None, pytest.param(1e3, marks=pytest.mark.volume)])
def test_faster_than_memory_is_rejected(tmp_path: Path, wired: float | None) -> None:
    found = evaluated_where_memory_is_slow(tmp_path, wired)
    assert isinstance(found.verdict, Rejected)
    assert found.verdict.rule == "physics"
    assert "32,768 bytes takes at 0 GB/s" in found.verdict.reason


def test_faster_than_what_we_reach_ourselves_is_not(tmp_path: Path) -> None:
    """A program that only reads comes nearer to what the wires carry than any sweep that the peaks were measured by."""
    assert evaluated_where_memory_is_slow(tmp_path, 1e15).verdict.state == "correct"


def test_only_what_the_reference_reads_must_be_moved(tmp_path: Path) -> None:
    source = PROBLEM.replace("return x + x", "return x[:16].sum(dim=1)")
    instance = instantiate(written(tmp_path, source))
    assert bytes_that_matter(Reference(instance, 1), instance.inputs(2)) == 16 * 64 * 4 + 16 * 4
    inputs = instance.inputs(3)
    before = inputs[0].clone()
    bytes_that_matter(Reference(instance, 1), inputs)
    assert torch.equal(inputs[0], before), "the inputs are as they were"


@pytest.mark.parametrize(
    ("forward", "moved"),
    [("x.flatten(), x[:1].expand(9, -1)", 0), ("x, x.sum()", 64 * 64 * 4 + 4), ("x.add_(1)", None)],
)
def test_a_view_of_an_input_moves_nothing(tmp_path: Path, forward: str, moved: int | None) -> None:
    body = PROBLEM[PROBLEM.index("for _ in") : PROBLEM.index("return x + x")]
    source = PROBLEM.replace(body, "").replace("return x + x", f"return {forward}")
    instance = instantiate(written(tmp_path, source))
    inputs = instance.inputs(2)
    wanted = 2 * inputs[0].nbytes if moved is None else moved
    assert bytes_that_matter(Reference(instance, 1), inputs) == wanted
