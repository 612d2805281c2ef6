"""After a disturbed measurement the loop waits for a quieter moment, within limits, and measures again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.loop.scripts import ADVICE, ORIGINAL, PROGRAM, drive, scripted, workshop

from kforge.loop import HeadToHeads, QuietMoments, RunLimits, forge
from kforge.loop.quiet import LABEL, is_disturbed, look
from kforge.records import Attempt, Candidate, Comparison, Correct, Evaluation, HeadToHead, Interval, Receipt, Timing

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.evaluation import Judge
    from kforge.store import RunFolder

DOUBT = "other processes used 80% of the machine during timing"
BUSY = HeadToHead(finding="undecided", busy=0.8, reason="other processes used 80% of the machine")


def measured(doubt: str | None = None) -> Evaluation:
    speedup = Interval(median=1.0, low=0.9, high=1.1)
    eager = Comparison(baseline="eager", identity="torch", seconds=1.0, speedup=speedup, doubt=doubt)
    receipt = Receipt(
        problem="p", candidate="c", platform="null", precision="strict", seed="0", device="d", versions={},
        sandbox="s", timer="t",
    )  # fmt: skip
    timing = Timing(seconds=speedup, comparisons=(eager,), pairs=20)
    verdict = Correct(max_error=0.0, tolerance=1e-5, cases=20, timing=timing)
    return Evaluation(verdict=verdict, receipt=receipt, labels=("busy_machine",) if doubt else ())


class Machine:
    """Shares of the machine that others use, look by look; the last one stays."""

    def __init__(self, *shares: float) -> None:
        self.shares = list(shares)
        self.looks = 0

    def look(self, _: float) -> float:
        self.looks += 1
        return self.shares.pop(0) if len(self.shares) > 1 else self.shares[0]


def test_it_waits_until_the_machine_is_quiet_and_says_so() -> None:
    machine, said = Machine(0.9, 0.5, 0.02), list[str]()
    assert QuietMoments(10.0, watch=said.append, look=machine.look).came()
    assert machine.looks == 3
    assert said == [
        "waiting for a quieter moment: other processes use 90% of the machine, at most 30 s",
        "waiting for a quieter moment: other processes use 50% of the machine, at most 30 s",
    ]


@pytest.mark.parametrize(("longest", "budget"), [(0.001, 0.0), (10.0, 0.01)])
def test_it_waits_no_longer_than_timing_and_budget_allow(longest: float, budget: float) -> None:
    quiet = QuietMoments(longest, budget, look=Machine(0.9).look)
    assert not quiet.came()
    assert quiet.wait() == 0.9


def test_after_a_wait_in_vain_it_only_looks_until_the_machine_was_quiet_once() -> None:
    machine, said = Machine(0.9), list[str]()
    quiet = QuietMoments(0.001, watch=said.append, look=machine.look)
    assert not quiet.came()
    looks = machine.looks
    assert said[-1] == "going on beside other processes, which use 90% of the machine"
    assert not quiet.came()
    assert machine.looks == looks + 1
    machine.shares = [0.0]
    assert quiet.came()
    machine.shares, told = [0.9], len(said)
    assert not quiet.came()
    assert len(said) > told, "it waits again"


def test_without_a_limit_nothing_is_waited_for() -> None:
    machine = Machine(0.0)
    quiet = QuietMoments(look=machine.look)
    assert (quiet.came(), quiet.wait(), machine.looks) == (False, 0.0, 0)


def test_a_look_at_this_machine_is_a_share() -> None:
    assert 0.0 <= look(0.02) < 2.0


def test_only_what_others_made_uncertain_is_disturbed() -> None:
    assert is_disturbed(measured(DOUBT))
    assert not is_disturbed(measured())
    assert not is_disturbed(measured().model_copy(update={"labels": ("busy_machine",)})), "enough pairs were quiet"
    assert is_disturbed(BUSY)
    assert not is_disturbed(BUSY.model_copy(update={"busy": 0.0}))
    assert not is_disturbed(BUSY.model_copy(update={"finding": "slower"}))


@pytest.mark.parametrize(("share", "is_again"), [(0.0, True), (0.9, False)])
def test_a_disturbed_evaluation_is_repeated_when_a_quiet_moment_came(
    judge: Judge, run: RunFolder, tmp_path: Path, share: float, is_again: bool
) -> None:
    work = workshop(
        run, judge, scripted(tmp_path, PROGRAM.format("2 * x")), quiet=QuietMoments(0.001, look=Machine(share).look)
    )
    loop = forge(run, work, RunLimits(1, replications=0, sanitize=False))
    with run.writing():
        run.put_stage(0, "evaluation", measured(DOUBT))
        attempt = next(loop)
    assert (run.path / "attempts" / "000" / "evaluation_again.json").exists() == is_again
    if not is_again:
        assert attempt.evaluation == measured(DOUBT)


def test_the_original_module_is_not_measured_again(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    """Cause: a run without a kernel waited for a quiet moment, and measured a speed that is never shown."""
    machine = Machine(0.0)
    quiet = QuietMoments(10.0, look=machine.look)
    loop = forge(run, workshop(run, judge, scripted(tmp_path, ORIGINAL), quiet=quiet), RunLimits(1))
    with run.writing():
        run.put_stage(0, "evaluation", measured(DOUBT))
        attempt = next(loop)
    assert attempt.unchanged is not None
    assert attempt.evaluation == measured(DOUBT)
    assert machine.looks == 0


def test_the_measurement_of_the_quiet_moment_counts_also_after_a_kill(
    judge: Judge, run: RunFolder, tmp_path: Path
) -> None:
    with run.writing():
        run.put_stage(0, "evaluation", measured(DOUBT))
        run.put_stage(0, "evaluation_again", measured())
    attempts, _ = drive(
        run, workshop(run, judge, scripted(tmp_path, PROGRAM.format("2 * x"))), RunLimits(1, replications=0)
    )
    assert attempts[0].evaluation is not None
    assert attempts[0].evaluation.verdict == measured().verdict
    assert LABEL in attempts[0].evaluation.labels


def test_a_pair_that_others_left_undecided_is_held_again(judge: Judge, run: RunFolder) -> None:
    def attempt(index: int) -> Attempt:
        candidate = Candidate(source=f"# {index}", platform="null")
        return Attempt(index=index, phase="functional", candidate=candidate, evaluation=measured())

    decided = HeadToHead(finding="faster")
    with run.writing():
        run.commit(attempt(0))
        run.put_stage(1, "against_0", BUSY)
        assert HeadToHeads(run, judge).hold(attempt(1), attempt(0)) == BUSY
        run.put_stage(1, "against_0_again", decided)
        assert HeadToHeads(run, judge).hold(attempt(1), attempt(0)) == decided


def test_the_analysis_agent_is_told_of_a_disturbed_profile(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    answers = [PROGRAM.format("2 * x"), ADVICE, "no program", "none again"]
    work = workshop(run, judge, scripted(tmp_path, *answers), quiet=QuietMoments(0.001, look=Machine(0.9).look))
    attempts, _ = drive(run, work, RunLimits(2, replications=0, roofline_share=9, sanitize=False))
    assert attempts[1].profile is not None
    assert attempts[1].profile.digest_text.startswith("Disturbed: other processes used 90% of the machine")
    asked = (run.exchange / "002-analysis.request.json").read_text()
    assert "Disturbed: other processes used 90%" in asked
