"""A speedup too good to be true at once: it is believed when it was measured again, by fresh processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.evaluation.constants import AGREEMENT, QUARANTINE, REPLICATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.records import Evaluation


def is_quarantined(evaluation: Evaluation) -> bool:
    return evaluation.correct is not None and evaluation.correct.timing.speedup.low > QUARANTINE


def replicate(evaluation: Evaluation, again: Callable[[], Evaluation]) -> Evaluation:
    """The evaluation, labelled `replicated`; in doubt where a repetition is slower; the repetition where that fails."""
    assert evaluation.correct is not None
    claimed = evaluation.correct.timing.speedup
    for _ in range(REPLICATIONS):
        repeated = again()
        if repeated.correct is None:
            return repeated
        found = repeated.correct.timing.speedup
        if found.high < AGREEMENT * claimed.low:
            said = f"a speedup over {QUARANTINE:g}x is measured again, and the repetition gave {found.median:.1f}x"
            return _doubted(evaluation, said)
    return evaluation.model_copy(update={"labels": (*evaluation.labels, "replicated")})


def _doubted(evaluation: Evaluation, doubt: str) -> Evaluation:
    correct = evaluation.correct
    assert correct is not None
    comparisons = tuple(c.model_copy(update={"doubt": c.doubt or doubt}) for c in correct.timing.comparisons)
    timing = correct.timing.model_copy(update={"comparisons": comparisons})
    verdict = correct.model_copy(update={"timing": timing})
    return evaluation.model_copy(update={"verdict": verdict, "labels": (*evaluation.labels, "quarantined")})
