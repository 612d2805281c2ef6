"""The data types that kforge stores and passes around: frozen, identified by a hash of their content, stored as JSON.

A verdict is a union of types, and only `Correct` has a `Timing`. So a failed candidate cannot have a speedup. A field
without a value is left out of the JSON, so that no record contains a number that was not measured.
"""

from kforge.records.attempt import Attempt, Recommendation, Usage
from kforge.records.device import CacheLevel, DeviceFact, DeviceFacts, Peaks
from kforge.records.evidence import (
    Evaluation,
    NotSanitized,
    Proof,
    Receipt,
    Replication,
    Sanitization,
    SanitizedClean,
    SanitizerFinding,
    Trace,
)
from kforge.records.head_to_head import HeadToHead, Standing
from kforge.records.numbers import Amount, Count, Finite, Positive
from kforge.records.outcome import Disproof, Outcome, best_attempt, recorded, why_no_kernel
from kforge.records.policy import EvaluationLimits, EvaluationPolicy
from kforge.records.problem import Candidate, Problem, TensorSpec, Workload
from kforge.records.profile import (
    BELIEVABLE_SHARE,
    AuthoredCode,
    HotSpot,
    ImportedProfile,
    KernelCounters,
    Profile,
    Roofline,
    SourceLine,
    SourceLoop,
    Span,
)
from kforge.records.record import Record, as_json
from kforge.records.verdict import (
    VERDICT,
    WIN_BOUND,
    Comparison,
    CompilationFailure,
    Correct,
    Finding,
    GenerationFailure,
    Interval,
    Mismatch,
    Rejected,
    RuntimeFailure,
    Timing,
    Verdict,
    times,
)

__all__ = [
    "BELIEVABLE_SHARE",
    "VERDICT",
    "WIN_BOUND",
    "Amount",
    "Attempt",
    "AuthoredCode",
    "CacheLevel",
    "Candidate",
    "Comparison",
    "CompilationFailure",
    "Correct",
    "Count",
    "DeviceFact",
    "DeviceFacts",
    "Disproof",
    "Evaluation",
    "EvaluationLimits",
    "EvaluationPolicy",
    "Finding",
    "Finite",
    "GenerationFailure",
    "HeadToHead",
    "HotSpot",
    "ImportedProfile",
    "Interval",
    "KernelCounters",
    "Mismatch",
    "NotSanitized",
    "Outcome",
    "Peaks",
    "Positive",
    "Problem",
    "Profile",
    "Proof",
    "Receipt",
    "Recommendation",
    "Record",
    "Rejected",
    "Replication",
    "Roofline",
    "RuntimeFailure",
    "Sanitization",
    "SanitizedClean",
    "SanitizerFinding",
    "SourceLine",
    "SourceLoop",
    "Span",
    "Standing",
    "TensorSpec",
    "Timing",
    "Trace",
    "Usage",
    "Verdict",
    "Workload",
    "as_json",
    "best_attempt",
    "recorded",
    "times",
    "why_no_kernel",
]
