"""Numbers over many problems. The functions are pure: no torch, no files, and random resampling depends on a seed only.

They take `ProblemResult`s. Failures count. Problems whose number is unknown are counted separately.
"""

from kforge.metrics.ceilings import Ceiling, roofline_share, roofline_shares, sol_of, sol_score, sol_scores
from kforge.metrics.costs import Cost, CostPoint, Currency, cost, cost_curve, spent_until_correct
from kforge.metrics.iterations import (
    ENDED,
    START,
    IterationStates,
    PassAtK,
    StateChange,
    chance_of_one,
    iteration_states,
    pass_at_k,
    state_changes,
)
from kforge.metrics.paired import MEASURES, NO_DIFFERENCE, Measure, PairedTest, adjusted, paired_test
from kforge.metrics.resampling import ALPHA, Estimate, holm, least_pairs, mean_with_band, sign_flip_p
from kforge.metrics.result import (
    BROKEN,
    CORRECT,
    DISPROVED,
    NO_ATTEMPT,
    NO_KERNEL,
    UNFINISHED,
    WAITING,
    AttemptResult,
    ProblemResult,
)
from kforge.metrics.speedups import (
    THRESHOLDS,
    FastCurve,
    FastPoint,
    fast_curve,
    fast_curves,
    kept_speedup,
    mean_speedup,
)
from kforge.metrics.summary import Gain, Metrics, by_family, summarize
from kforge.metrics.workloads import WeightedResult, WorkloadGain, weigh

__all__ = [
    "ALPHA",
    "BROKEN",
    "CORRECT",
    "DISPROVED",
    "ENDED",
    "MEASURES",
    "NO_ATTEMPT",
    "NO_DIFFERENCE",
    "NO_KERNEL",
    "START",
    "THRESHOLDS",
    "UNFINISHED",
    "WAITING",
    "AttemptResult",
    "Ceiling",
    "Cost",
    "CostPoint",
    "Currency",
    "Estimate",
    "FastCurve",
    "FastPoint",
    "Gain",
    "IterationStates",
    "Measure",
    "Metrics",
    "PairedTest",
    "PassAtK",
    "ProblemResult",
    "StateChange",
    "WeightedResult",
    "WorkloadGain",
    "adjusted",
    "by_family",
    "chance_of_one",
    "cost",
    "cost_curve",
    "fast_curve",
    "fast_curves",
    "holm",
    "iteration_states",
    "kept_speedup",
    "least_pairs",
    "mean_speedup",
    "mean_with_band",
    "paired_test",
    "pass_at_k",
    "roofline_share",
    "roofline_shares",
    "sign_flip_p",
    "sol_of",
    "sol_score",
    "sol_scores",
    "spent_until_correct",
    "state_changes",
    "summarize",
    "weigh",
]
