"""`kforge verify`: a repetition agrees, does not, or cannot be compared; a forged receipt is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kforge import settings
from kforge.cli import receipts
from kforge.cli.verifying import ClaimCheck, _load, compare, not_compared
from kforge.evaluation.baselines import compile_mode, compiled_as, identity
from kforge.records import (
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    Interval,
    Mismatch,
    Problem,
    Proof,
    Receipt,
    RuntimeFailure,
    Timing,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Forged

PROBLEM = Problem(name="p", source="p")
CANDIDATE = Candidate(source="c", platform="forest")


def evaluation(low: float, high: float, *, device: str = "here", doubt: str | None = None) -> Evaluation:
    speedup = Interval(median=(low + high) / 2, low=low, high=high)
    comparison = Comparison(baseline="eager", identity="", seconds=1.0, speedup=speedup, doubt=doubt)
    timing = Timing(seconds=Interval(median=1.0, low=1.0, high=1.0), comparisons=(comparison,), pairs=20)
    return Evaluation(
        verdict=Correct(max_error=0.0, tolerance=1e-5, cases=20, timing=timing),
        receipt=Receipt(
            problem=PROBLEM.digest, candidate=CANDIDATE.digest, platform="forest", precision="strict", seed="s",
            device=device, versions={}, sandbox="none", timer="clock",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("repeated", "outcome", "said"),
    [
        (evaluation(1.9, 2.1), "agrees", ""),
        (evaluation(2.3, 2.5), "does not agree", "is now 2.40x"),
        (evaluation(1.2, 1.4), "does not agree", "is now 1.30x"),
        (evaluation(2.12, 2.3), "agrees", ""),  # misses by less than machines drift
        (evaluation(1.2, 1.4, device="there"), "not comparable", "the claim was measured on here, the repetition on"),
        (evaluation(1.2, 1.4, doubt="others were busy"), "not comparable", "the repetition is in doubt: others were"),
    ],
)
def test_a_repetition_agrees_or_does_not_or_cannot_be_compared(repeated: Evaluation, outcome: str, said: str) -> None:
    found = compare(evaluation(1.8, 2.1), repeated)
    assert (found.outcome, said in "; ".join(found.reasons), bool(found.reasons)) == (outcome, True, bool(said))


def test_a_claim_that_is_not_proven_again_does_not_agree() -> None:
    found = compare(evaluation(1.03, 1.3), evaluation(0.95, 1.1))
    assert (found.outcome, found.reasons) == (
        "not comparable", ("the repetition does not show that it is faster: 1.02x (0.95 to 1.10) over eager",),
    )  # fmt: skip


def test_failures_agree_where_they_are_of_one_kind() -> None:
    died, raised = (
        evaluation(1, 2).model_copy(update={"verdict": RuntimeFailure(fault=fault, reason=fault)})
        for fault in ("died", "raised")
    )
    assert compare(died, died).outcome == "agrees"
    assert compare(died, raised) == ClaimCheck("does not agree", ("died is now raised",))
    assert not_compared(died, raised) == ("reason (died: died claimed, raised: raised here)",)


def test_a_claim_that_was_disturbed_cannot_be_compared() -> None:
    found = compare(evaluation(1.8, 2.1, doubt="others were busy"), evaluation(1.2, 1.4))
    assert (found.outcome, found.reasons) == (
        "not comparable", ("the claimed measurement is in doubt: others were busy",),
    )  # fmt: skip


def test_what_disturbed_the_claim_and_all_of_its_baselines_is_said_once() -> None:
    disturbed = with_compile(evaluation(1.8, 2.1, doubt="busy"), evaluation(1.8, 2.1, doubt="busy"))
    assert compare(disturbed, disturbed).reasons == ("the claimed measurement is in doubt: busy",)


def test_another_state_is_a_difference_even_where_the_repetition_was_disturbed() -> None:
    claimed = evaluation(1.8, 2.1, doubt="others were busy")
    wrong = claimed.model_copy(update={"verdict": Mismatch(kind="numerical", reason="off")})
    assert compare(claimed, wrong) == ClaimCheck("does not agree", ("it was correct and is mismatch",))


def with_compile(eager: Evaluation, compiled: Evaluation) -> Evaluation:
    """An evaluation with what another one says of eager as its comparison with torch.compile."""
    assert eager.correct is not None
    assert compiled.correct is not None
    second = compiled.correct.timing.comparisons[0].model_copy(update={"baseline": "compile"})
    timing = eager.correct.timing.model_copy(update={"comparisons": (*eager.correct.timing.comparisons, second)})
    return eager.model_copy(update={"verdict": eager.correct.model_copy(update={"timing": timing})})


def test_one_baseline_that_differs_decides_where_another_was_disturbed() -> None:
    claimed = with_compile(evaluation(1.8, 2.1), evaluation(1.8, 2.1))
    found = compare(claimed, with_compile(evaluation(1.2, 1.4), evaluation(1.8, 2.1, doubt="others were busy")))
    assert (found.outcome, len(found.reasons)) == ("does not agree", 1)


@pytest.mark.parametrize(
    ("outcome", "status", "keys"),
    [
        ("agrees", 0, {"agrees": True, "differences": []}),
        ("does not agree", 1, {"agrees": False, "differences": ["why"]}),
        ("not comparable", 3, {"reasons": ["why"]}),
    ],
)
def test_each_outcome_has_a_status_and_keys_of_its_own(outcome: str, status: int, keys: dict[str, object]) -> None:
    found = ClaimCheck(outcome, () if outcome == "agrees" else ("why",))  # type: ignore[arg-type]
    assert found.status == status
    assert found.document() == {"outcome": outcome.replace(" ", "_"), **keys}


def test_the_claim_of_a_run_is_what_its_repetitions_say(forged: Forged, clean_environment: dict[str, str]) -> None:
    claim = _load(str(forged.folder), settings.load(clean_environment))
    assert claim.is_ours
    assert [receipts.contradictions(each) for each in claim.evidence] == [[]] * len(claim.evidence)
    proof = claim.proof
    assert proof.evaluation.correct is not None
    claimed = proof.evaluation.correct.timing.speedup
    assert claimed.median == forged.document["best"]["speedup"]["eager"]["median"]
    assert claimed.median == forged.document["replicated"][0]["speedup"]["median"]


def test_invented_facts_are_absurd_or_said_to_be_not_compared() -> None:
    """Cause: a receipt could invent cases, errors, labels, versions and its sandbox, and `verify` said "agrees"."""
    honest = evaluation(1.8, 2.1)
    assert honest.correct is not None
    receipt = honest.receipt.model_copy(update={"sandbox": "everything", "versions": {"torch": "99.0"}})
    told = honest.model_copy(update={"labels": ("sanitized",), "receipt": receipt})
    assert not_compared(honest, honest) == ()
    assert [each.partition(" (")[0] for each in not_compared(told, honest)] == ["labels", "versions", "sandbox"]
    assert "torch 99.0 claimed" in not_compared(told, honest)[1]
    for name, value in {"cases": 10**6, "tolerance": 1e-12}.items():
        verdict = honest.correct.model_copy(update={name: value})
        assert compare(honest.model_copy(update={"verdict": verdict}), honest).outcome == "does not agree"


def test_a_repetition_is_compared_with_the_same_mode() -> None:
    told = identity(compiled_as("max-autotune"), torch_version="2.11", threads=1, precision="strict")
    assert compile_mode(told) == "max-autotune"
    for nonsense in ("", "[]", "{}", "[" * 100_000, '{"mode": "torch.compile none"}'):
        with pytest.raises(ValueError, match=r"."):
            compile_mode(nonsense)


def test_a_receipt_of_something_else_is_refused(kforge_in_process, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    proof = Proof(problem=PROBLEM, candidate=CANDIDATE, evaluation=evaluation(1.8, 2.1))
    forged = json.loads(proof.to_json())
    forged["candidate"]["source"] = "another"
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    (tmp_path / "text.json").write_text("hello")
    for name in ("forged.json", "text.json", "absent.json"):
        ran = kforge_in_process("verify", tmp_path / name)
        assert ran.status == 2
        assert ran.stdout == ""
        assert ran.stderr.count("\n") == 1


def test_a_failure_is_repeated_as_one(kforge_in_process, root: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    example = root / "examples" / "softmax_scale"
    receipt = tmp_path / "receipt.json"
    first = kforge_in_process(
        "eval", example / "problem.py", example / "candidates" / "mismatch.py", "--receipt", receipt
    )
    assert first.status == 1
    again = kforge_in_process("verify", receipt, "--json")
    assert again.status == 0
    document = json.loads(again.stdout)
    assert (document["outcome"], document["agrees"]) == ("agrees", True)
