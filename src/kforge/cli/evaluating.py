"""`eval`: verifies and times one candidate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kforge import durable, problems, settings
from kforge.cli import NOT_FOUND
from kforge.cli.forging import read_text
from kforge.cli.output import documents, words
from kforge.cli.output.display import open_progress
from kforge.cli.output.lines import say
from kforge.cli.receipts import signed
from kforge.errors import InputError
from kforge.records import Candidate, Proof, RuntimeFailure
from kforge.session import open_judge, usable_platform

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.cli.options import ReportOptions, Rules, Target
    from kforge.records import Evaluation, Sanitization


def evaluate(
    problem_path: Path,
    candidate_path: Path,
    target: Target,
    rules: Rules,
    report: ReportOptions,
    *,
    overrides: list[str],
    sanitize: bool,
) -> int:
    policy = rules.policy
    if report.receipt is not None:
        _must_be_writable(report.receipt)
    chosen = settings.load(memory=rules.memory)
    platform = usable_platform(target.platform, chosen, target.folders)
    problem = problems.load(problem_path, overrides)
    candidate = Candidate(source=read_text(candidate_path), platform=platform.name)
    with (
        open_judge(platform, chosen, policy) as judge,
        open_progress(f"{problem.name} on {platform.name}: {candidate_path}") as display,
    ):
        judge.on_stage = display.stage
        evaluation = judge.evaluate(problem, candidate)
        crashed = isinstance(evaluation.verdict, RuntimeFailure) and evaluation.verdict.crashed
        wanted = sanitize and (evaluation.correct is not None or crashed)
        sanitization = judge.sanitize(problem, candidate) if wanted else None
    if report.json:
        documents.print_json(documents.evaluation(evaluation) | documents.sanitization(sanitization))
    else:
        _print(evaluation, sanitization, timings=report.timings)
    if report.receipt is not None:  # written last, so that the verdict is printed even if writing fails
        proof = signed(Proof(problem=problem, candidate=candidate, evaluation=evaluation), chosen.signing_key)
        durable.write(report.receipt.absolute(), proof.to_json(indent=2) + "\n")
    found = sanitization is not None and sanitization.finding is not None
    return 0 if evaluation.correct is not None and not found else NOT_FOUND


def _must_be_writable(receipt: Path) -> None:
    """Raise InputError if the receipt cannot be written. This is checked first, because an evaluation takes minutes."""
    folder = receipt.absolute().parent
    if receipt.is_dir():
        raise InputError(f"cannot write the receipt {receipt}: it is a folder")
    if not folder.is_dir():
        raise InputError(f"cannot write the receipt {receipt}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise InputError(f"cannot write the receipt {receipt}: the folder {folder} is not writable")


def _print(evaluation: Evaluation, sanitization: Sanitization | None, *, timings: bool) -> None:
    if evaluation.correct is None:
        say(f"{words.state(evaluation.verdict)}: {words.detail(evaluation.verdict)}")
    else:
        say(words.correctness(evaluation.correct))
        for line in words.figures(evaluation.correct.comparisons):
            say(f"  {line}")
    if (trace := evaluation.receipt.trace) is not None and trace.authored_share is not None:
        own = trace.authored_share
        say(f"computing: {own:.0%} of the time in the program's own code, {1 - own:.0%} in libraries")
    for baseline, reason in evaluation.receipt.unavailable.items():
        say(f"{words.BASELINES[baseline]} was not measured: {reason}")
    for line in words.conditions(evaluation.receipt):
        say(line)
    if sanitization is not None:
        say(words.sanitized(sanitization))
    if evaluation.labels:
        say(f"labels: {', '.join(evaluation.labels)}")
    if timings:
        for stage, seconds in evaluation.receipt.stages.items():
            say(f"{stage:>10} {seconds:8.3f} s")
