"""`kforge verify`: a repetition agrees, or says in what it does not; a forged receipt is refused."""

import json
from pathlib import Path

import pytest

from kforge.cli.verifying import _differences, _mode
from kforge.errors import InputError
from kforge.evaluation.baselines import compiled_as, identity
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
    Timing,
)

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
    ("repeated", "words"),
    [
        (evaluation(1.9, 2.1), ""),
        (evaluation(2.3, 2.5), "is now 2.40x"),
        (evaluation(1.2, 1.4), "is now 1.30x"),
        (evaluation(2.12, 2.3), ""),  # misses by less than machines drift
        (evaluation(1.9, 2.1, device="there"), "this is there"),
        (evaluation(1.9, 2.1, doubt="others were busy"), "others were busy"),
    ],
)
def test_differences_are_named(repeated: Evaluation, words: str) -> None:
    found = _differences(evaluation(1.8, 2.1), repeated)
    assert words in "; ".join(found)
    assert bool(found) == bool(words)


def test_another_state_is_a_difference() -> None:
    claimed = evaluation(1.8, 2.1)
    wrong = claimed.model_copy(update={"verdict": Mismatch(kind="numerical", reason="off")})
    assert _differences(claimed, wrong) == ["it was correct and is mismatch"]


def test_a_repetition_is_compared_with_the_same_mode() -> None:
    speedup = Interval(median=1.0, low=1.0, high=1.0)
    told = identity(compiled_as("max-autotune"), torch_version="2.11", threads=1, precision="strict")
    assert _mode(Comparison(baseline="compile", identity=told, seconds=1.0, speedup=speedup)) == "max-autotune"
    with pytest.raises(InputError, match="does not say what it was compared with"):
        _mode(Comparison(baseline="compile", identity="", seconds=1.0, speedup=speedup))


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
    assert json.loads(again.stdout)["agrees"] is True
