"""`verify`: a reported number is measured again, by fresh processes with new secrets, and held against its receipt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from kforge import settings
from kforge.cli import NOT_COMPARABLE, NOT_FOUND, documents, words
from kforge.cli.display import open_progress
from kforge.cli.forging import read_text
from kforge.cli.lines import say
from kforge.errors import InputError
from kforge.evaluation.baselines import compile_mode
from kforge.records import Correct, Proof, times
from kforge.session import open_judge, usable_platform
from kforge.store import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.records import Comparison, Evaluation, Verdict
    from kforge.settings import Settings

SLACK = 0.05
"""Intervals of two sittings that miss each other by less than this share still agree: machines drift."""


@dataclass(frozen=True)
class Comparability:
    """Whether a repetition bears out a claim."""

    outcome: Literal["agrees", "does not agree", "not comparable"]
    reasons: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        return {"agrees": 0, "does not agree": NOT_FOUND, "not comparable": NOT_COMPARABLE}[self.outcome]

    def document(self) -> dict[str, Any]:
        """For `--json`: whether it agrees is absent where nothing can be said about it."""
        named = {"outcome": self.outcome.replace(" ", "_")}
        if self.outcome == "not comparable":
            return {**named, "reasons": list(self.reasons)}
        return {**named, "agrees": self.outcome == "agrees", "differences": list(self.reasons)}


def verify(name: str, platform_dirs: list[Path], *, json: bool) -> int:
    """Status 0 when the repetition agrees, 1 when it does not, 3 when it cannot be compared."""
    chosen = settings.load()
    proof = _load(name, chosen)
    claimed = proof.evaluation
    platform = usable_platform(claimed.receipt.platform, chosen, platform_dirs)
    compiled = claimed.verdict.timing.against("compile") if isinstance(claimed.verdict, Correct) else None
    with (
        open_judge(
            platform,
            chosen,
            precision=claimed.receipt.precision,
            track=claimed.receipt.track,
            compile_baseline=compiled is not None,
            compile_mode=_mode(compiled) if compiled is not None else "default",
        ) as judge,
        open_progress(f"{proof.problem.name} on {platform.name}: measuring again") as display,
    ):
        judge.on_stage = display.stage
        repeated = judge.evaluate(proof.problem, proof.candidate)
    found = compare(claimed, repeated)
    if json:
        evaluations = {"claimed": documents.evaluation(claimed), "repeated": documents.evaluation(repeated)}
        documents.print_json(found.document() | evaluations)
    else:
        for which, evaluation in (("claimed", claimed), ("repeated", repeated)):
            for line in _lines(which, evaluation.verdict):
                say(line)
        say(f"{found.outcome}: {'; '.join(found.reasons)}" if found.reasons else found.outcome)
    return found.status


def _lines(which: str, verdict: Verdict) -> Iterator[str]:
    if not isinstance(verdict, Correct):
        yield f"{which}: {words.state(verdict)}: {words.detail(verdict)}"
        return
    yield f"{which}: correct, {words.duration(verdict.timing.seconds.median)} a call"
    for line in words.figures(verdict.timing.comparisons):
        yield f"  {line}"


def _mode(compiled: Comparison) -> str:
    try:
        return compile_mode(compiled.identity)
    except ValueError as error:
        raise InputError(f"the receipt does not say what it was compared with: {error}") from error


def _load(name: str, chosen: Settings) -> Proof:
    if Path(name).is_file():
        try:
            return Proof.from_json(read_text(Path(name)))
        except ValidationError as error:
            reason = error.errors(include_url=False)[0]["msg"]
            raise InputError(f"{name} is not a receipt of `kforge eval --receipt`: {reason}") from error
    run = RunFolder.find(chosen.runs, name)
    best, reported = run.best(), run.reported()
    if best is None or best.candidate is None or reported is None:
        raise InputError(f"run {run.id} has no correct program to verify")
    return Proof(problem=run.header.problem, candidate=best.candidate, evaluation=reported)


def compare(claimed: Evaluation, repeated: Evaluation) -> Comparability:
    """Hold a repetition against a claim: another state or another speed differs; what was disturbed says nothing."""
    if claimed.verdict.state != repeated.verdict.state:
        said = f"it was {words.state(claimed.verdict)} and is {words.state(repeated.verdict)}"
        return Comparability("does not agree", (said,))
    if claimed.correct is None or repeated.correct is None:
        return Comparability("agrees")
    if (there := claimed.receipt.device) != (here := repeated.receipt.device):
        said = f"the claim was measured on {there}, the repetition on {here}"
        return Comparability("not comparable", (said,))
    differences, disturbances = list[str](), list[str]()
    for was in claimed.correct.timing.comparisons:
        now = repeated.correct.timing.against(was.baseline)
        baseline = words.BASELINES[was.baseline]
        if was.doubt is not None:
            disturbances.append(f"the claimed measurement was disturbed: {was.doubt}")
        elif now is None:
            differences.append(f"{baseline} could not be measured this time")
        elif now.doubt is not None:
            disturbances.append(f"the repetition was disturbed: {now.doubt}")
        elif now.speedup.low > was.speedup.high * (1 + SLACK) or now.speedup.high < was.speedup.low * (1 - SLACK):
            differences.append(f"{times(was.speedup)} over {baseline} is now {times(now.speedup)}")
    if differences:
        return Comparability("does not agree", tuple(differences))
    if disturbances:
        return Comparability("not comparable", tuple(dict.fromkeys(disturbances)))
    return Comparability("agrees")
