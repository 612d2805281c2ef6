"""Measures a very large speedup again with fresh processes before it is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.evaluation.constants import AGREEMENT, QUARANTINE, REPLICATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.records import Evaluation

MOST_REPLICATIONS = REPLICATIONS + 2
"""Most repetitions, so that REPLICATIONS of them are undisturbed."""


def is_quarantined(evaluation: Evaluation) -> bool:
    timing = evaluation.correct.timing if evaluation.correct is not None else None
    return timing is not None and timing.speedup.low > QUARANTINE


def replicate(evaluation: Evaluation, again: Callable[[], Evaluation]) -> Evaluation:
    """Return the evaluation, labelled `replicated`; with a doubt where a repetition is slower; the repetition itself
    where that fails.

    A disturbed repetition confirms nothing. It is repeated, a few times, unless the evaluation itself is already in
    doubt. Where too few undisturbed ones remain, the speedup is in doubt.
    """
    assert evaluation.correct is not None
    claimed = evaluation.correct.comparisons[0]
    sound, disturbance = 0, ""
    for _ in range(REPLICATIONS if claimed.doubt is not None else MOST_REPLICATIONS):
        repeated = again()
        if repeated.correct is None:
            return repeated
        found = repeated.correct.comparisons[0]
        if found.speedup.high < AGREEMENT * claimed.speedup.low:
            return _doubted(evaluation, f"the repetition gave {found.speedup.median:.1f}x")
        if found.doubt is not None:
            disturbance = found.doubt
            continue
        sound += 1
        if sound == REPLICATIONS:
            return evaluation.model_copy(update={"labels": (*evaluation.labels, "replicated")})
    return _doubted(evaluation, f"repetitions were disturbed: {disturbance}")


def _doubted(evaluation: Evaluation, found: str) -> Evaluation:
    correct = evaluation.correct
    assert correct is not None
    assert correct.timing is not None
    doubt = f"a speedup over {QUARANTINE:g}x is measured again, and {found}"
    comparisons = tuple(c.model_copy(update={"doubt": c.doubt or doubt}) for c in correct.timing.comparisons)
    timing = correct.timing.model_copy(update={"comparisons": comparisons})
    verdict = correct.model_copy(update={"timing": timing})
    return evaluation.model_copy(update={"verdict": verdict, "labels": (*evaluation.labels, "quarantined")})
