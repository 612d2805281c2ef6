"""Stages: keys of receipts stay, users read words; cases are counted, and the time left is told once it is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.stages import WORDS, CaseCounter, Stages
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy

if TYPE_CHECKING:
    from pathlib import Path


def test_a_stage_is_told_in_words_and_kept_by_its_key() -> None:
    said: list[str] = []
    stages = Stages(said.append)
    with stages("verify"), stages("time"):
        pass
    assert said == ["checking correctness", "timing against eager"]
    assert set(stages.seconds) == {"verify", "time"}


@pytest.mark.parametrize("words", WORDS.values())
def test_words_are_a_stage_without_a_detail(words: str) -> None:
    assert ": " not in words


def test_the_time_left_is_told_after_two_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("kforge.evaluation.stages.time.monotonic", lambda: now)
    said: list[str] = []
    count = CaseCounter("verify", 5, said.append)
    for _ in range(5):
        count.begin_next()
        now += 20.0
    assert said == [
        "checking correctness: case 1 of 5",
        "checking correctness: case 2 of 5",
        "checking correctness: case 3 of 5, about 60 s left",
        "checking correctness: case 4 of 5, about 40 s left",
        "checking correctness: case 5 of 5, about 20 s left",
    ]


def test_an_evaluation_tells_every_case(tmp_path: Path) -> None:
    folder = platforms.find("null").folder / "example"
    problem = problems.load(folder / "reference.py")
    candidate = Candidate(source=(folder / "kernel.py").read_text(), platform="null")
    said: list[str] = []
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=tmp_path,
        environment={},
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
        on_stage=said.append,
    ) as judge:
        evaluation = judge.evaluate(problem, candidate)
    assert evaluation.correct is not None, evaluation.verdict
    cases = [re.fullmatch(r"checking correctness: case (\d+) of (\d+)(, about \d+ s left)?", each) for each in said]
    numbers = [(int(case[1]), int(case[2])) for case in cases if case]
    total = numbers[0][1]
    assert numbers == [(number, total) for number in range(1, total + 1)]
    assert evaluation.correct.cases <= total
    assert {"problem", "start", "build", "verify", "time"} <= set(evaluation.receipt.stages)
    for told in said:
        assert told.partition(": ")[0] in WORDS.values(), told
