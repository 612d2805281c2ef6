"""`kforge prompts`: what the agents would be asked, without asking a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge import problems, settings
from kforge.agents import AnalysisAgent, Briefing, GenerationAgent
from kforge.agents.facts import original
from kforge.agents.unasked import Unasked, as_text, question
from kforge.choices import FailedState, Step
from kforge.cli.output import documents
from kforge.cli.output.display import open_progress
from kforge.cli.output.lines import say_page
from kforge.loop import measured_facts
from kforge.records import (
    CompilationFailure,
    Correct,
    GenerationFailure,
    Mismatch,
    Recommendation,
    Rejected,
    RuntimeFailure,
)
from kforge.session import open_judge, usable_platform

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kforge.cli.options import Asking, Target
    from kforge.evaluation import Judge
    from kforge.models import Request
    from kforge.records import EvaluationPolicy, Problem
    from kforge.roles import Failed


STAND_IN = "(what the run says stands here)"
"""Placeholder for text that exists only in a run: the reason of a failure, or a recommendation."""
_FAILURES: dict[str, Failed] = {
    "generation_failure": GenerationFailure(reason=STAND_IN),
    "compilation_failure": CompilationFailure(reason=STAND_IN),
    "runtime_error": RuntimeFailure(fault="raised", reason=STAND_IN),
    "mismatch": Mismatch(kind="numerical", reason=STAND_IN, case="zeros"),
    "rejected": Rejected(rule="the_rule", reason=STAND_IN),
}


def show(
    problem: Path,
    target: Target,
    policy: EvaluationPolicy,
    asking: Asking,
    *,
    overrides: Sequence[str],
    json: bool,
) -> int:
    """Print the prompt of one step of the loop, and return the exit status. There is no program yet, so the prompt
    shows the problem's own module in its place. Raises InputError if the problem or the platform cannot be used."""
    chosen = settings.load()
    found = problems.load(problem, overrides)
    platform = usable_platform(target.platform, chosen, target.folders)
    with open_progress(f"{found.name}: prompt") as progress, open_judge(platform, chosen, policy) as judge:
        judge.on_stage = progress.stage
        briefing = Briefing(policy, measured_facts(judge, found), asking.prompts, asking.prompt_tokens)
        asked = _question(found, judge, briefing, asking.step, asking.state)
    if json:
        documents.print_json([{"role": each.role, "text": each.text} for each in asked.messages])
    else:
        say_page(as_text(asked))
    return 0


def _question(problem: Problem, judge: Judge, briefing: Briefing, step: Step, state: FailedState) -> Request:
    """Return what the agent would be asked in this step."""
    platform, workload = judge.platform, judge.describe(problem)
    generator = GenerationAgent(Unasked(), platform, briefing=briefing)
    program = original(problem, platform.name)
    match step:
        case Step.GENERATE:
            return question(lambda: generator.write(problem, workload))
        case Step.REPAIR:
            shown = None if state is FailedState.GENERATION_FAILURE else program
            return question(lambda: generator.repair(problem, workload, shown, _FAILURES[state]))
        case Step.ANALYZE:
            profile = judge.profile(problem, program)
            analyst = AnalysisAgent(Unasked(), platform, briefing=briefing)
            return question(lambda: analyst.recommend(problem, workload, program, profile))
        case Step.OPTIMIZE:
            advice = Recommendation(**dict.fromkeys(Recommendation.model_fields, STAND_IN))
            correct = Correct(max_error=0.0, tolerance=0.0, cases=1, untimed=STAND_IN)
            return question(lambda: generator.optimize(problem, workload, program, correct, advice))
