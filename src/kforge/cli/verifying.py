"""`verify`: measures a reported number again, in fresh processes with new secrets, and compares it with its receipt."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kforge import settings
from kforge.choices import CompileMode
from kforge.cli import NOT_COMPARABLE, NOT_FOUND, receipts
from kforge.cli.forging import read_text
from kforge.cli.options import Permission
from kforge.cli.output import documents, words
from kforge.cli.output.display import open_progress
from kforge.cli.output.lines import say
from kforge.cli.trusting import consent
from kforge.evaluation.baselines import compile_mode
from kforge.records import Correct, EvaluationPolicy, Mismatch, Rejected, RuntimeFailure, times
from kforge.session import open_judge, usable_platform
from kforge.store import RunFolder
from kforge.store.trust import admit_problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.cli.receipts import Claim
    from kforge.records import Comparison, Evaluation, Interval, Verdict
    from kforge.settings import Settings

SLACK = 0.05
"""Largest gap, as a share, between the intervals of two measurements that still agree. It allows for drift of a
machine."""
EXCUSED = math.log(1.25)
"""Largest difference of the medians, as a logarithm, that is excused because the claimed interval is wide."""
TIMES_AS_WIDE = 4.0
"""Largest width of a claimed interval, as a multiple of the measured interval's width. EXCUSED is added."""
ABSURD = 100.0
"""Largest factor by which the number of cases or the tolerance of a claim may differ from those of the repetition."""
SAME_PACE = 4.0
"""Factor by which the seconds per call may differ between two measurements on one device."""


@dataclass(frozen=True)
class ClaimCheck:
    """The result of comparing a claim with its repetition, and the reasons if the two do not agree."""

    outcome: Literal["agrees", "does not agree", "not comparable"]
    reasons: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        return {"agrees": 0, "does not agree": NOT_FOUND, "not comparable": NOT_COMPARABLE}[self.outcome]

    def document(self) -> dict[str, Any]:
        """Return the `--json` document. `agrees` is absent if the two cannot be compared."""
        named = {"outcome": self.outcome.replace(" ", "_")}
        if self.outcome == "not comparable":
            return {**named, "reasons": list(self.reasons)}
        return {**named, "agrees": self.outcome == "agrees", "differences": list(self.reasons)}


def verify(
    name: str,
    platform_dirs: list[Path],
    *,
    trust: bool = False,
    problem: Path | None = None,
    memory: str = "",
    json: bool,
) -> int:
    """Repeat a measurement. Status 0 when the repetition agrees, 1 when it does not, 3 when it cannot be compared.

    A claim that contradicts itself does not agree, and none of its code is run. Raises InputError, also for a receipt
    or run made by others whose problem the user does not permit.
    """
    chosen = settings.load(memory=memory)
    claim = _load(name, chosen)
    proof, claimed = claim.proof, claim.proof.evaluation
    # one contradiction is enough: recomputing takes a while
    if found := next(filter(None, map(receipts.contradictions, claim.evidence)), None):
        reasons = tuple(f"the claim contradicts itself: {said}" for said in dict.fromkeys(found))
        return _tell(ClaimCheck("does not agree", reasons), claim, None, json=json)
    if not claim.is_ours:
        said = consent(proof.problem, Permission(trust=trust, problem=problem))
        admit_problem(proof.problem, claim.origin, said, claim.readable)
    platform = usable_platform(claimed.receipt.platform, chosen, platform_dirs)
    timing = claimed.correct.timing if claimed.correct is not None else None
    compiled = timing.against("compile") if timing is not None else None
    with (
        open_judge(
            platform,
            chosen,
            EvaluationPolicy(
                precision=claimed.receipt.precision,
                track=claimed.receipt.track,
                compile_baseline=compiled is not None,
                compile_mode=compile_mode(compiled.identity) if compiled is not None else CompileMode.DEFAULT,
            ),
        ) as judge,
        open_progress(f"{proof.problem.name} on {platform.name}: measuring again") as display,
    ):
        judge.on_stage = display.stage
        repeated = judge.evaluate(proof.problem, proof.candidate)
    return _tell(compare(claimed, repeated), claim, repeated, json=json)


def _tell(found: ClaimCheck, claim: Claim, repeated: Evaluation | None, *, json: bool) -> int:
    """Print the comparison and return its exit status. `repeated` is the new evaluation; None if there was none."""
    claimed = claim.proof.evaluation
    digest = hashlib.sha256(claim.proof.candidate.source.encode()).hexdigest()
    evaluations = {"claimed": claimed} | ({"repeated": repeated} if repeated is not None else {})
    others = receipts.not_recomputed(claim.evidence)
    others += not_compared(claimed, repeated) if repeated is not None else ()
    if json:
        shown = {which: documents.evaluation(evaluation) for which, evaluation in evaluations.items()}
        program = {"sha256": digest} | ({"path": str(claim.program)} if claim.program is not None else {})
        documents.print_json(
            found.document() | {"program": program} | shown | ({"not_compared": list(others)} if others else {})
        )
    else:
        say(f"program: {claim.program or 'the one that it holds'} (SHA-256 {digest})")
        for which, evaluation in evaluations.items():
            for line in _lines(which, evaluation.verdict):
                say(line)
        if others:
            say(f"not compared: {'; '.join(others)}")
        say(f"{found.outcome}: {'; '.join(found.reasons)}" if found.reasons else found.outcome)
    return found.status


def _lines(which: str, verdict: Verdict) -> Iterator[str]:
    if not isinstance(verdict, Correct):
        yield f"{which}: {words.state(verdict)}: {words.detail(verdict)}"
        return
    timing = verdict.timing
    yield f"{which}: correct, {words.pace(timing) if timing is not None else f'not timed: {verdict.untimed}'}"
    for line in words.figures(verdict.comparisons):
        yield f"  {line}"


def _load(name: str, chosen: Settings) -> Claim:
    if Path(name).is_file():
        return receipts.read(read_text(Path(name)), name, chosen.signing_key)
    return receipts.of_run(RunFolder.find(chosen.runs, name), chosen.signing_key)


def compare(claimed: Evaluation, repeated: Evaluation) -> ClaimCheck:
    """Compare a repetition with a claim. Another verdict or another speed means that they do not agree. A
    measurement in doubt, or another device, means that they cannot be compared."""
    if claimed.verdict.state != repeated.verdict.state:
        said = f"it was {words.state(claimed.verdict)} and is {words.state(repeated.verdict)}"
        return ClaimCheck("does not agree", (said,))
    if claimed.correct is None or repeated.correct is None:
        before, after = _kind(claimed.verdict), _kind(repeated.verdict)
        differs = (f"{before} is now {after}",) if before != after else ()
        return ClaimCheck("does not agree" if differs else "agrees", differs)
    if (there := claimed.receipt.device) != (here := repeated.receipt.device):
        said = f"the claim was measured on {there}, the repetition on {here}"
        return ClaimCheck("not comparable", (said,))
    differences, doubts = list(_absurd(claimed.correct, repeated.correct)), list[str]()
    again = {each.baseline: each for each in repeated.correct.comparisons}
    for was in claimed.correct.comparisons:
        now = again.get(was.baseline)
        baseline = words.BASELINES[was.baseline]
        if now is None:
            differences.append(f"{baseline} could not be measured this time")
        elif (doubt := _doubt(was, now)) is not None:
            doubts.append(doubt)
        elif (apart := difference(was.speedup, now.speedup)) is not None:
            differences.append(f"{apart}: {times(was.speedup)} over {baseline} is now {times(now.speedup)}")
        elif was.finding == "faster" and now.finding != "faster":
            doubts.append(f"the repetition does not show that it is faster: {times(now.speedup)} over {baseline}")
    if differences:
        return ClaimCheck("does not agree", tuple(differences))
    if doubts:
        return ClaimCheck("not comparable", tuple(dict.fromkeys(doubts)))
    return ClaimCheck("agrees")


def _doubt(was: Comparison, now: Comparison) -> str | None:
    if was.doubt is not None:
        return f"the claimed measurement is in doubt: {was.doubt}"
    return None if now.doubt is None else f"the repetition is in doubt: {now.doubt}"


def _kind(verdict: Verdict) -> str:
    """Return the kind of failure within its state."""
    match verdict:
        case RuntimeFailure():
            return verdict.fault
        case Rejected():
            return verdict.rule
        case Mismatch():
            return verdict.kind
    return verdict.state


def _absurd(was: Correct, now: Correct) -> Iterator[str]:
    """Yield descriptions of values that differ by more than any honest repetition explains. The numbers of cases and
    the tolerances vary with the secret cases and with kforge's version, but less."""
    if was.timing is not None and now.timing is not None:
        before, after = was.timing.seconds.median, now.timing.seconds.median
        if not before / SAME_PACE <= after <= before * SAME_PACE:
            yield f"{words.duration(before)} a call is now {words.duration(after)}"
    if not now.cases / ABSURD <= was.cases <= now.cases * ABSURD:
        yield f"{was.cases} correctness cases are now {now.cases}"
    if not now.tolerance / ABSURD <= was.tolerance <= now.tolerance * ABSURD:
        yield f"a tolerance of {was.tolerance:.1e} is now {now.tolerance:.1e}"


def not_compared(claimed: Evaluation, repeated: Evaluation) -> tuple[str, ...]:
    """Return the facts that differ between claim and repetition but do not decide the outcome, such as labels and
    versions."""
    facts = {
        "labels": (", ".join(claimed.labels), ", ".join(repeated.labels)),
        "versions": tuple(
            ", ".join(f"{name} {value}" for name, value in sorted(each.receipt.versions.items()))
            for each in (claimed, repeated)
        ),
        "sandbox": (claimed.receipt.sandbox, repeated.receipt.sandbox),
        "reason": tuple("" if each.correct is not None else words.detail(each.verdict) for each in (claimed, repeated)),
    }
    if claimed.correct is not None and repeated.correct is not None:
        was, now = claimed.correct, repeated.correct
        facts["cases"] = (str(was.cases), str(now.cases))
        facts["largest error"] = (f"{was.max_error:.1e}", f"{now.max_error:.1e}")
        facts["tolerance"] = (f"{was.tolerance:.1e}", f"{now.tolerance:.1e}")
    return tuple(
        f"{name} ({was or 'none'} claimed, {now or 'none'} here)" for name, (was, now) in facts.items() if was != now
    )


def difference(was: Interval, now: Interval) -> str | None:
    """Return how a claimed speedup differs from the one that was measured now; None if they agree.

    Both the intervals and the medians must agree, because a very wide interval overlaps every other one. A wide claimed
    interval excuses a difference only up to EXCUSED. The rest of the allowed difference depends on the repetition
    alone, which the author of a claim cannot influence.
    """
    own, theirs = (math.log(each.high / each.low) / 2 for each in (now, was))
    apart = math.log(was.median / now.median)
    allowed = math.log1p(SLACK) + 2 * own + min(theirs, EXCUSED)
    misses = now.low > was.high * (1 + SLACK) or now.high < was.low * (1 - SLACK)
    if misses or abs(apart) > allowed:
        return "the claim is higher than the measurement" if apart > 0 else "the claim is lower than the measurement"
    if theirs > TIMES_AS_WIDE * own + EXCUSED:
        return "the claimed interval is far wider than the measured one"
    return None
