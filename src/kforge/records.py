"""The nouns of kforge: frozen, content-hashed, picklable, JSON both ways.

The verdict is a union of types, and only `Correct` has a `Timing`: a failed candidate cannot carry a speedup.
A field that does not apply is absent from the JSON, so no record ever holds a number that nobody measured.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator


class Record(BaseModel):
    """An immutable value whose identity is its content."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    not_identity: ClassVar[frozenset[str]] = frozenset()
    """Fields that describe the record without being part of what it is (a display name, a place on disk)."""

    @property
    def digest(self) -> str:
        """SHA-256 over the type's name and the content: same content, same id, on every machine."""
        content = self.model_dump(mode="json", exclude=set(self.not_identity))
        text = json.dumps([type(self).__name__, content], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self, *, indent: int | None = None) -> str:
        return self.model_dump_json(indent=indent, exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        return cls.model_validate_json(text)


# --- problem and workload ---------------------------------------------------------------------------------


class Problem(Record):
    """A PyTorch module to make faster, as one source text with `Model`, `get_inputs` and `get_init_inputs`."""

    not_identity: ClassVar[frozenset[str]] = frozenset({"name", "state_path"})

    name: str
    source: str
    """The effective source: overrides are already written into it."""
    overrides: tuple[tuple[str, str], ...] = ()
    """`--set NAME=VALUE` as given, sorted by name."""
    state_digest: str | None = None
    """SHA-256 of the file with the weights of a live module; absent for a problem file."""
    state_path: str | None = None


class TensorSpec(Record):
    shape: tuple[int, ...]
    dtype: str
    """torch's name without the prefix: `float32`."""


class Workload(Record):
    """What one call of a problem takes and makes: measured facts, found by running the reference once."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[TensorSpec, ...]
    flops: int
    """Counted by torch for matmul-like operators; elementwise work is not counted."""
    bytes_moved: int
    """The least any program must move: every input, parameter and output once."""
    labels: tuple[str, ...] = ()


# --- candidate and verdict --------------------------------------------------------------------------------


class Candidate(Record):
    """One program: a Python file with a `ModelNew`, for one platform."""

    source: str
    platform: str


class Interval(Record):
    """A median with its 95 % interval."""

    median: float
    low: float
    high: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"interval out of order: {self.low} <= {self.median} <= {self.high}")
        return self


WIN_BOUND = 1.02
"""A win is claimed only when the interval's lower bound is over this; a loss mirrors it."""


class Comparison(Record):
    """The candidate against one baseline, in one paired measurement."""

    baseline: str
    """`eager` or `compile`."""
    identity: str
    """What exactly ran: versions, mode, threads."""
    seconds: float
    """Median seconds a call of the baseline."""
    speedup: Interval
    doubt: str | None = None
    """Why the interval is not to be believed, where something disturbed the measurement."""

    @property
    def finding(self) -> Literal["faster", "slower", "cannot tell"]:
        if self.doubt is not None:
            return "cannot tell"
        if self.speedup.low > WIN_BOUND:
            return "faster"
        return "slower" if self.speedup.high < 1 / WIN_BOUND else "cannot tell"


class Timing(Record):
    """Seconds a call and the speedups, all from verified calls."""

    seconds: Interval
    comparisons: tuple[Comparison, ...] = Field(min_length=1)
    pairs: int

    def against(self, baseline: str) -> Comparison | None:
        return next((c for c in self.comparisons if c.baseline == baseline), None)

    @property
    def speedup(self) -> Interval:
        """Over the first baseline, which is always eager."""
        return self.comparisons[0].speedup


class GenerationFailure(Record):
    """No program could be read out of the answer."""

    state: Literal["generation_failure"] = "generation_failure"
    reason: str


class CompilationFailure(Record):
    state: Literal["compilation_failure"] = "compilation_failure"
    reason: str
    log: str = ""
    """The compiler's own words, trimmed to the lines that matter."""


class RuntimeFailure(Record):
    state: Literal["runtime_error"] = "runtime_error"
    fault: Literal["timed_out", "died", "raised"]
    reason: str
    log: str = ""
    """The traceback inside the candidate, when it raised."""


class Mismatch(Record):
    state: Literal["mismatch"] = "mismatch"
    kind: Literal["structure", "shape", "dtype", "numerical"]
    reason: str
    case: str = ""
    max_error: float | None = None
    """Largest error relative to the output's scale; present for numerical mismatches only."""
    tolerance: float | None = None


class Rejected(Record):
    """The program cheats, or attacks the evaluator."""

    state: Literal["rejected"] = "rejected"
    rule: str
    reason: str


class Correct(Record):
    state: Literal["correct"] = "correct"
    max_error: float
    tolerance: float
    cases: int
    timing: Timing


Verdict = Annotated[
    GenerationFailure | CompilationFailure | RuntimeFailure | Mismatch | Rejected | Correct,
    Field(discriminator="state"),
]
VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)


class Trace(Record):
    """In whose code a program was found at random moments of its timed calls."""

    authored: int
    library: int
    neither: int
    """In the interpreter, or in what serves both sides."""

    @property
    def telling(self) -> int:
        """The moments that belong to one of the two."""
        return self.authored + self.library

    @property
    def authored_share(self) -> float | None:
        """Of the telling moments; None where there are none."""
        return self.authored / self.telling if self.telling else None


class Receipt(Record):
    """What it takes to believe a verdict, or to repeat it."""

    problem: str
    candidate: str
    platform: str
    precision: str
    track: str = "library"
    seed: str
    """The secret of the correctness cases, revealed only now that the verdict stands."""
    device: str
    versions: dict[str, str]
    sandbox: str
    timer: str
    samples: dict[str, tuple[float, ...]] = {}
    """Raw seconds a call of every timed block, by side."""
    stages: dict[str, float] = {}
    """Seconds of wall time the evaluation spent in each stage."""
    trace: Trace | None = None
    """Absent where it cannot be taken, or the program was not timed."""


class Evaluation(Record):
    """A verdict with its receipt."""

    verdict: Verdict
    receipt: Receipt
    labels: tuple[str, ...] = ()

    @property
    def correct(self) -> Correct | None:
        return self.verdict if isinstance(self.verdict, Correct) else None


class Replication(Record):
    """What would be reported best, evaluated again: fresh processes, new secrets."""

    evaluations: tuple[Evaluation, ...]

    @property
    def failure(self) -> Verdict | None:
        """The first repetition's verdict that was not correct."""
        return next((e.verdict for e in self.evaluations if e.correct is None), None)

    @property
    def speedups(self) -> tuple[float, ...]:
        """Medians over eager of the repetitions that were correct, from the worst to the best."""
        return tuple(sorted(e.correct.timing.speedup.median for e in self.evaluations if e.correct is not None))


# --- sanitizers -------------------------------------------------------------------------------------------


class SanitizedClean(Record):
    state: Literal["clean"] = "clean"
    sanitizer: str
    """Every one that looked at the program and found nothing."""
    cases: int
    """That the one with the fewest was run on."""
    not_run: tuple[str, ...] = ()
    """Those of the platform's sanitizers that say nothing about the program, each with its reason."""


class SanitizerFinding(Record):
    """A program that passed without a sanitizer does not with one."""

    state: Literal["finding"] = "finding"
    sanitizer: str
    failure: RuntimeFailure | Mismatch | Rejected = Field(discriminator="state")
    """What a repair needs, as if the program had failed by itself."""


class NotSanitized(Record):
    """No statement: there is no sanitizer, or it could not look at the program."""

    state: Literal["unavailable"] = "unavailable"
    reason: str


class Sanitization(Record):
    """What a platform's sanitizer says about a correct program."""

    outcome: SanitizedClean | SanitizerFinding | NotSanitized = Field(discriminator="state")
    seconds: float = 0.0

    @property
    def finding(self) -> SanitizerFinding | None:
        return self.outcome if isinstance(self.outcome, SanitizerFinding) else None


class Proof(Record):
    """An evaluation with all it takes to repeat it: what a receipt file holds."""

    problem: Problem
    candidate: Candidate
    evaluation: Evaluation

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        receipt = self.evaluation.receipt
        if (receipt.problem, receipt.candidate) != (self.problem.digest, self.candidate.digest):
            raise ValueError("the receipt is of another problem or candidate than the ones beside it")
        return self


# --- profile and recommendation ---------------------------------------------------------------------------


class HotSpot(Record):
    """One operator or kernel in a profile."""

    name: str
    calls: int
    seconds: float
    """Per call of the module."""
    share: float


class KernelCounters(Record):
    """What a device's counters say about one kernel. A figure that nobody measured is absent; shares are of 1."""

    name: str
    launches: int
    seconds: float
    """Of all its launches together."""
    share: float
    """Of the time of all kernels that were counted."""
    figures: dict[str, float] = {}
    """By the names that `profiling.counters` lists."""
    stalls: dict[str, float] = {}
    """Of the time that warps are resident: the share they wait, by reason."""
    pipes: dict[str, float] = {}
    """How busy each kind of arithmetic unit is."""
    limits: tuple[str, ...] = ()
    """What keeps more warps from being resident."""


class Peaks(Record):
    """What a device can do at most, measured on it."""

    device: str
    bytes_per_second: float
    flops_per_second: float
    lowered: dict[str, float] = {}
    """Arithmetic in the lower precisions that a program may declare (`tf32`, `half`), where the device has them."""

    def flops(self, precision: str) -> float:
        """The arithmetic a second that a program of this declared precision may reach."""
        return self.lowered.get(precision, self.flops_per_second)


class Roofline(Record):
    """The least time physics allows for a workload on a device with these measured peaks."""

    peaks: Peaks
    memory_seconds: float
    compute_seconds: float

    @property
    def floor_seconds(self) -> float:
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def bound(self) -> Literal["memory", "compute"]:
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"


class Profile(Record):
    """A profile of one correct program, digested to a page that the performance analysis agent reads."""

    tool: str
    """The rung of the profiler ladder that was really used."""
    seconds: float
    hot_spots: tuple[HotSpot, ...]
    roofline: Roofline
    digest_text: str
    kernels: tuple[KernelCounters, ...] = ()
    bottleneck: str = ""
    """Named by rule from what was measured; empty where no rule holds."""

    @property
    def roofline_share(self) -> float:
        """How near the program is to what the device allows, where 1 is all of it.

        A program that beats the arithmetic floor clearly does less arithmetic than the reference (algebra), so only
        memory bounds it.
        """
        memory, compute = self.roofline.memory_seconds / self.seconds, self.roofline.compute_seconds / self.seconds
        return max(memory, compute) if compute <= 1.05 else memory


class ImportedProfile(Record):
    """A profile read from exports that were made elsewhere: nothing in it was seen by us."""

    tool: str
    hot_spots: tuple[HotSpot, ...]
    """Per call where the number of calls is known, else of all that was recorded."""
    digest_text: str
    kernels: tuple[KernelCounters, ...] = ()
    bottleneck: str = ""
    seconds: float | None = None
    """The device's time a call, where the number of calls is known."""
    roofline: Roofline | None = None
    """Where a problem was given."""


class Recommendation(Record):
    """One recommendation, aimed at the bottleneck with the highest impact."""

    bottleneck: str
    action: str
    rationale: str
    evidence: str
    expected_gain: str


# --- talking to models ------------------------------------------------------------------------------------


class Usage(Record):
    """What model calls cost. A price nobody knows is absent, not zero."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        known = [u.cost_usd for u in (self, other) if u.cost_usd is not None]
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=sum(known) if known else None,
        )


# --- attempts ---------------------------------------------------------------------------------------------


class Attempt(Record):
    """One iteration: what it grew from, what was recommended, what was written, what the judge said."""

    index: int
    phase: Literal["functional", "optimization"]
    parent: int | None = None
    """The attempt this one repairs or improves; absent for the first."""
    profile: Profile | None = None
    """The parent's profile, in an optimization pass."""
    recommendation: Recommendation | None = None
    candidate: Candidate | None = None
    """Absent after a generation failure."""
    evaluation: Evaluation | None = None
    failure: GenerationFailure | None = None
    requests: tuple[str, ...] = ()
    """Exchange identities of the model calls of this iteration."""
    usage: Usage = Usage()
    seconds: float = 0.0
    """Wall time of the iteration, models and evaluation together."""

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if (self.evaluation is None) == (self.failure is None):
            raise ValueError("an attempt has an evaluation or a generation failure, and not both")
        if (self.evaluation is None) != (self.candidate is None):
            raise ValueError("an attempt has a candidate exactly when it was evaluated")
        return self

    @property
    def verdict(
        self,
    ) -> GenerationFailure | CompilationFailure | RuntimeFailure | Mismatch | Rejected | Correct:
        if self.evaluation is not None:
            return self.evaluation.verdict
        assert self.failure is not None
        return self.failure

    @property
    def speedup(self) -> Interval | None:
        verdict = self.verdict
        return verdict.timing.speedup if isinstance(verdict, Correct) else None


def as_json(value: Record) -> Any:
    """Plain JSON data of a record, without the fields that do not apply."""
    return json.loads(value.to_json())  # not model_dump: only the JSON writer turns infinity into valid JSON
