"""`verify`: a reported number is measured again, by fresh processes with new secrets, and held against its receipt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kforge import settings
from kforge.cli import NOT_FOUND, documents, words
from kforge.cli.display import open_progress
from kforge.cli.forging import read_text
from kforge.errors import InputError
from kforge.evaluation.baselines import compile_mode
from kforge.records import Correct, Proof
from kforge.session import open_judge, usable_platform
from kforge.store import RunFolder

if TYPE_CHECKING:
    from kforge.records import Comparison, Evaluation, Verdict
    from kforge.settings import Settings

SLACK = 0.05
"""Intervals of two sittings that miss each other by less than this share still agree: machines drift."""


def verify(name: str, platform_dirs: list[Path], *, json: bool) -> int:
    """Status 0 when the repetition agrees, 1 when it does not."""
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
        open_progress(f"{proof.problem.name}: the same again") as display,
    ):
        judge.on_stage = display.stage
        repeated = judge.evaluate(proof.problem, proof.candidate)
    differences = _differences(claimed, repeated)
    if json:
        documents.print_json(
            {
                "agrees": not differences,
                "differences": differences,
                "claimed": documents.evaluation(claimed),
                "repeated": documents.evaluation(repeated),
            }
        )
    else:
        print(f"claimed:  {words.state(claimed.verdict)}: {words.detail(claimed.verdict)}")
        print(f"repeated: {words.state(repeated.verdict)}: {words.detail(repeated.verdict)}")
        print("agrees" if not differences else "does not agree: " + "; ".join(differences))
    return NOT_FOUND if differences else 0


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
    best = run.best()
    if best is None or best.candidate is None or best.evaluation is None:
        raise InputError(f"run {run.id} has no correct attempt to verify")
    return Proof(problem=run.header.problem, candidate=best.candidate, evaluation=best.evaluation)


def _differences(claimed: Evaluation, repeated: Evaluation) -> list[str]:
    """What does not hold any more; empty when the repetition agrees."""
    if claimed.verdict.state != repeated.verdict.state:
        return [f"it was {words.state(claimed.verdict)} and is {words.state(repeated.verdict)}"]
    found = []
    if claimed.receipt.device != repeated.receipt.device:
        found.append(f"it was measured on {claimed.receipt.device}, this is {repeated.receipt.device}")
    return found + _speed_differences(claimed.verdict, repeated.verdict)


def _speed_differences(claimed: Verdict, repeated: Verdict) -> list[str]:
    if not isinstance(claimed, Correct) or not isinstance(repeated, Correct):
        return []
    found = []
    for was in claimed.timing.comparisons:
        now = repeated.timing.against(was.baseline)
        if now is None:
            found.append(f"there is no {was.baseline} baseline any more")
        elif now.doubt is not None:
            found.append(f"the repetition was disturbed: {now.doubt}")
        elif now.speedup.low > was.speedup.high * (1 + SLACK) or now.speedup.high < was.speedup.low * (1 - SLACK):
            found.append(f"{words.times(was.speedup)} against {was.baseline} is now {words.times(now.speedup)}")
    return found
