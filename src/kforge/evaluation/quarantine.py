"""Repeats an evaluation with a very large speedup in fresh processes before the speedup is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.evaluation.constants import AGREEMENT, QUARANTINE, REPLICATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.records import Evaluation

MOST_REPLICATIONS = REPLICATIONS + 2
"""Most repetitions of one evaluation. Two more than REPLICATIONS, because a disturbed repetition confirms nothing."""


def is_quarantined(evaluation: Evaluation) -> bool:
    """Return whether the lower bound of the speedup is above QUARANTINE, so that the evaluation must be repeated."""
    timing = evaluation.correct.timing if evaluation.correct is not None else None
    return timing is not None and timing.speedup.low > QUARANTINE


def replicate(evaluation: Evaluation, again: Callable[[], Evaluation]) -> Evaluation:
    """Repeat an evaluation, and return the evaluation to report.

    Returns the first evaluation with the label `replicated` if REPLICATIONS undisturbed repetitions confirm its
    speedup. Returns it with the label `quarantined` and a doubt if a repetition is slower, or if too few repetitions
    are undisturbed. Returns the repetition if the candidate is not correct there. `again` runs one repetition.
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
    """Return the evaluation with the label `quarantined`, and with a doubt for every comparison that has none yet."""
    correct = evaluation.correct
    assert correct is not None
    assert correct.timing is not None
    doubt = f"a speedup over {QUARANTINE:g}x is measured again, and {found}"
    comparisons = tuple(c.model_copy(update={"doubt": c.doubt or doubt}) for c in correct.timing.comparisons)
    timing = correct.timing.model_copy(update={"comparisons": comparisons})
    verdict = correct.model_copy(update={"timing": timing})
    return evaluation.model_copy(update={"verdict": verdict, "labels": (*evaluation.labels, "quarantined")})
