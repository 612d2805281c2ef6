"""The smith as both agents: it answers every problem, follows its own advice, and knows when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems, settings
from kforge.errors import NothingLeft
from kforge.problems.instance import instantiate
from kforge.records import (
    Candidate,
    Comparison,
    Correct,
    HotSpot,
    Interval,
    Mismatch,
    Peaks,
    Problem,
    Profile,
    Recommendation,
    Timing,
    Workload,
)
from kforge.roles import Tried
from kforge.run_options import BUILTIN, RunOptions
from kforge.session import Session
from kforge.smith.brain import Smith
from kforge.smith.languages.cpp.plan import MOVES, CppPlan
from kforge.smith.languages.triton.plan import TritonPlan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return FORWARD

def get_inputs():
    return [torch.randn(64, 128)]

def get_init_inputs():
    return []
"""
ONE = Interval(median=1.0, low=1.0, high=1.0)
RIGHT = Correct(
    max_error=0.0, tolerance=1e-5, cases=20,
    timing=Timing(
        seconds=ONE, comparisons=(Comparison(baseline="eager", identity="", seconds=1.0, speedup=ONE),), pairs=20
    ),
)  # fmt: skip
WRONG = Mismatch(kind="numerical", reason="off")


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], tuple[Problem, Workload]]:
    def loaded(forward: str) -> tuple[Problem, Workload]:
        path = tmp_path / "problem.py"
        path.write_text(PROBLEM.replace("FORWARD", forward))
        problem = problems.load(path)
        return problem, instantiate(problem).describe()

    return loaded


@pytest.fixture
def smith() -> Smith:
    return Smith(platforms.find("cpu"))


def profile(seconds: float) -> Profile:
    from kforge.profiling import digest, roofline

    workload = Workload(inputs=(), outputs=(), parameters=(), flops=0, bytes_moved=1 << 20, labels=())
    spots = (HotSpot(name="kernel", calls=1, seconds=seconds, share=1.0),)
    floor = roofline(workload, Peaks(device="a", bytes_per_second=1e10, flops_per_second=1e11))
    return digest(tool="test", seconds=seconds, hot_spots=spots, roofline=floor, workload=workload)


def written(smith: Smith, problem: Problem, workload: Workload) -> Candidate:
    candidate = smith.write(problem, workload).candidate
    assert candidate is not None
    return candidate


def test_a_program_says_how_it_was_made(smith: Smith, load: Callable[[str], tuple[Problem, Workload]]) -> None:
    candidate = written(smith, *load("torch.softmax(x, -1)"))
    assert CppPlan.of(candidate.source) == CppPlan.first(smith.platform.adapter.features())
    assert "library.fused_softmax(" in candidate.source
    assert CppPlan.of("x = 1") is None
    assert CppPlan.of("# Made by kforge's smith: nonsense") is None
    said = CppPlan().line()
    assert CppPlan.of(said) == CppPlan()
    assert CppPlan.of(said.rpartition(", ")[0]) is None, "a kforge that knew fewer choices"
    assert CppPlan.of(f"{said}, more=1") is None


def test_a_program_names_the_rules_that_were_used(
    smith: Smith, load: Callable[[str], tuple[Problem, Workload]]
) -> None:
    said = "# Rewritten by: shift before a softmax, inverse for many\n"
    assert said in written(smith, *load("torch.softmax(x + 1, -1)")).source
    assert "Rewritten by" not in written(smith, *load("torch.tanh(x)")).source


def test_what_it_owes_to_algebra_is_labelled(smith: Smith, load: Callable[[str], tuple[Problem, Workload]]) -> None:
    assert smith.write(*load("(x @ x.t()).sum()")).labels == ("algebraic",)
    assert smith.write(*load("torch.softmax(x, -1)")).labels == ()


def test_without_rewrites_no_plan_uses_algebra(load: Callable[[str], tuple[Problem, Workload]]) -> None:
    plain = Smith(platforms.find("cpu"), rewrites=False)
    problem, workload = load("torch.softmax(x + 1, -1)")
    assert "Rewritten by" not in written(plain, problem, workload).source
    assert plain.write(*load("(x @ x.t()).sum()")).labels == ()


def test_without_profiles_every_change_is_worth_a_try_in_its_order(
    load: Callable[[str], tuple[Problem, Workload]],
) -> None:
    problem, workload = load("torch.softmax(x, 0)")
    reading, blind = Smith(platforms.find("cpu")), Smith(platforms.find("cpu"), reads_profiles=False)
    candidate = written(blind, problem, workload)
    first = [blind.recommend(problem, workload, candidate, profile(each)).recommendation for each in (1e-6, 1.0)]
    assert first[0].action == first[1].action, "the profile decides nothing"
    by_profile = {
        reading.recommend(problem, workload, candidate, profile(each)).recommendation.action for each in (1e-6, 1.0)
    }
    assert len(by_profile) == 2


def test_its_advice_changes_the_program_and_ends(smith: Smith, load: Callable[[str], tuple[Problem, Workload]]) -> None:
    problem, workload = load("torch.softmax(x, 0)")
    candidate = written(smith, problem, workload)
    tried: list[Tried] = []
    seen = {candidate.source}
    while True:
        try:
            advice = smith.recommend(problem, workload, candidate, profile(1e-3), tried).recommendation
        except NothingLeft:
            break
        answer = smith.optimize(problem, workload, candidate, RIGHT, advice, tried).candidate
        assert answer is not None
        assert answer.source not in seen, "a move that changes nothing is not worth an iteration"
        seen.add(answer.source)
        tried.append(Tried(recommendation=advice, outcome="not faster"))
        assert len(tried) <= len(MOVES)
    assert len(tried) >= 2


def test_each_platform_has_its_own_language_plan_and_moves(load: Callable[[str], tuple[Problem, Workload]]) -> None:
    problem, workload = load("torch.exp(x) * 2")
    smith = Smith(platforms.find("triton"))
    candidate = written(smith, problem, workload)
    assert TritonPlan.of(candidate.source) == TritonPlan()
    assert CppPlan.of(candidate.source) is None
    assert "@triton.jit\ndef fused_exp_mul(" in candidate.source
    advice = smith.recommend(problem, workload, candidate, profile(1e-3), ()).recommendation
    answer = smith.optimize(problem, workload, candidate, RIGHT, advice).candidate
    assert answer is not None
    assert TritonPlan.of(answer.source) not in (None, TritonPlan())


def test_a_failure_is_answered_with_fewer_liberties(
    smith: Smith, load: Callable[[str], tuple[Problem, Workload]]
) -> None:
    problem, workload = load("torch.softmax(x + 1, -1)")
    candidate: Candidate | None = written(smith, problem, workload)
    plans = []
    reasons = []
    for _ in range(2):
        answer = smith.repair(problem, workload, candidate, WRONG)
        candidate = answer.candidate
        assert candidate is not None
        plans.append(CppPlan.of(candidate.source))
        reasons.append(answer.unchanged)
    said = "the built-in generator's programs with kernels fail; the last one: mismatch: off"
    assert reasons == [None, said], "only the second is the module itself"
    assert [(plan.algebra, plan.kernels) for plan in plans if plan] == [(0, 1), (0, 0)], "each makes another program"
    assert "library" not in candidate.source
    with pytest.raises(NothingLeft):
        smith.repair(problem, workload, candidate, WRONG)


def test_what_cannot_be_traced_is_answered_with_the_module(
    smith: Smith, load: Callable[[str], tuple[Problem, Workload]]
) -> None:
    answer = smith.write(*load("x * 2 if float(x.sum()) > 0 else x * 3"))
    assert answer.candidate is not None
    assert "class ModelNew(Model):\n    pass" in answer.candidate.source
    assert "torch.export fails" in answer.candidate.source
    assert str(answer.unchanged).startswith("the module cannot be traced: torch.export fails: ")


def test_a_loop_of_too_many_steps_is_answered_with_the_module(load: Callable[[str], tuple[Problem, Workload]]) -> None:
    triton = Smith(platforms.find("triton"))
    for steps, kernels in ((3, True), (900, False)):
        problem, workload = load(f"[x := torch.tanh(x) for _ in range({steps})][-1]")
        answer = triton.write(problem, workload)
        assert answer.candidate is not None
        assert ("@triton.jit" in answer.candidate.source) is kernels
        assert (answer.unchanged is None) is kernels
        if answer.unchanged is not None:
            assert answer.unchanged.startswith("the module has 901 operators, and kernels are built for at most ")
            assert answer.unchanged in answer.candidate.source


def test_a_remembered_plan_without_kernels_is_not_begun_with(load: Callable[[str], tuple[Problem, Workload]]) -> None:
    answer = Smith(platforms.find("cpu"), str(CppPlan(kernels=0))).write(*load("torch.softmax(x, -1)"))
    assert answer.unchanged is None


def test_without_a_kernel_language_it_is_the_module(load: Callable[[str], tuple[Problem, Workload]]) -> None:
    answer = Smith(platforms.find("null")).write(*load("torch.softmax(x + 1, -1)"))
    candidate = answer.candidate
    assert candidate is not None
    assert answer.unchanged == "the built-in generator has no kernel language for platform null"
    assert "Rewritten by" not in candidate.source
    assert "inline" not in candidate.source
    assert "class ModelNew(Model)" in candidate.source


@pytest.mark.parametrize("forward", ["torch.fft.rfft(x).real", "torch.relu(x.bfloat16() + 1)"])
def test_without_a_kernel_it_is_the_module_in_other_words(
    smith: Smith, load: Callable[[str], tuple[Problem, Workload]], forward: str
) -> None:
    answer = smith.write(*load(forward))
    assert answer.candidate is not None
    assert "inline" not in answer.candidate.source
    assert answer.unchanged is not None
    assert "leaves all of them to torch" in answer.unchanged


def test_a_kernel_for_a_part_is_a_result(smith: Smith, load: Callable[[str], tuple[Problem, Workload]]) -> None:
    answer = smith.write(*load("torch.fft.rfft(torch.relu(x + 1)).real"))
    assert answer.unchanged is None


def test_it_cannot_follow_what_somebody_else_recommends(
    smith: Smith, load: Callable[[str], tuple[Problem, Workload]]
) -> None:
    problem, workload = load("torch.softmax(x, -1)")
    foreign = Recommendation(bottleneck="a", action="use magic", rationale="c", evidence="d", expected_gain="e")
    with pytest.raises(NothingLeft):
        smith.optimize(problem, workload, written(smith, problem, workload), RIGHT, foreign)
    with pytest.raises(NothingLeft):
        smith.recommend(problem, workload, Candidate(source="x = 1", platform="cpu"), profile(1e-3))


def test_a_model_may_start_from_the_smiths_program(
    load: Callable[[str], tuple[Problem, Workload]], tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    problem, _ = load("torch.softmax(x, -1)")
    (tmp_path / "script.json").write_text('["no program at all", "none again"]')
    model = f"scripted:{tmp_path / 'script.json'}"
    options = RunOptions(
        platform="cpu", model=model, analyst=BUILTIN, seed="smith", iterations=2, compile_baseline=False,
        replications=0, sanitize=False,
    )  # fmt: skip
    chosen = settings.load(clean_environment)
    with Session.begin(problem, options, chosen, root=tmp_path / "runs") as session:
        first, second = list(session.attempts())
    assert first.candidate is not None
    assert CppPlan.of(first.candidate.source) is not None
    assert first.verdict.state == "correct"
    assert second.verdict.state == "generation_failure"
