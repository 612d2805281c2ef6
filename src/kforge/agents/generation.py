"""The generation agent F on top of a model."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kforge.agents import history
from kforge.agents.briefing import Briefing
from kforge.agents.conversation import said
from kforge.agents.facts import rule_facts, task_facts
from kforge.agents.parsing import ReadProgram, parse_program
from kforge.agents.sizing import fitted
from kforge.models import LanguageModel, Message, Reply, Request
from kforge.platforms.concepts import counterparts
from kforge.problems.inputs.in_words import explained
from kforge.prompts import Rendered, render
from kforge.records import (
    Attempt,
    Candidate,
    Correct,
    GenerationFailure,
    Mismatch,
    Problem,
    Recommendation,
    Usage,
    Workload,
)
from kforge.roles import UNADVISED, Answer, Failed, Tried

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kforge.platforms import Manifest, Platform

MAX_TOKENS = 32_768
"""Room for long thinking and a long program; reasoning models count their thinking."""
LOG_LINES = 40
"""Most lines of a compiler's or a program's log in a prompt: the first error, its notes, and the end."""


@dataclass(frozen=True)
class ReferenceProgram:
    """A program for the same problem on another platform."""

    source: str
    platform: Manifest | None = None
    """The platform that the program is for, if known. Then the prompt also says what its terms are called on the target
    platform."""


class GenerationAgent:
    """Writes and repairs programs. Every call starts a new conversation: a system message and a user message. If the
    answer cannot be read, that answer and a second question are added."""

    def __init__(
        self,
        model: LanguageModel,
        platform: Platform,
        *,
        briefing: Briefing | None = None,
        reference: ReferenceProgram | None = None,
    ) -> None:
        self.model = model
        self.platform = platform
        self.briefing = briefing or Briefing()
        self.reference = reference
        self.step = 0
        self.attempts: tuple[Attempt, ...] = ()

    def at(self, step: int, attempts: Sequence[Attempt] = ()) -> Self:
        twin = copy(self)
        twin.step = step
        twin.attempts = tuple(attempts)
        return twin

    def write(self, problem: Problem, workload: Workload) -> Answer:
        return self._ask("generate", problem, workload)

    def repair(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate | None,
        verdict: Failed,
        *,
        repeats: int = 0,
    ) -> Answer:
        chain = history.repaired(self.attempts, candidate)
        return self._ask(
            "repair",
            problem,
            workload,
            candidate=candidate,
            verdict=verdict,
            case=explained(verdict.case) if isinstance(verdict, Mismatch) and verdict.case else "",
            repeats=repeats,
            recommendation=history.followed(chain),
            last_correct=history.last_correct(chain),
            remarks=history.remarks(chain),
        )

    def optimize(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate,
        verdict: Correct,
        recommendation: Recommendation,
        tried: Sequence[Tried] = (),  # noqa: ARG002 - the attempts say more
    ) -> Answer:
        return self._ask(
            "optimize_alone" if recommendation == UNADVISED else "optimize",
            problem,
            workload,
            candidate=candidate,
            standing=history.standing(verdict),
            differences=history.differences(self.attempts, candidate),
            recommendation=recommendation,
        )

    def _ask(
        self,
        template: str,
        problem: Problem,
        workload: Workload,
        *,
        candidate: Candidate | None = None,
        **facts: object,
    ) -> Answer:
        """Ask for a program, and once more if the answer cannot be read. `candidate`: the program that edits change."""
        asked = self._question(template, problem, workload, {**facts, "candidate": candidate})
        reply = self.model.complete(asked)
        read = self._read(reply, candidate)
        if isinstance(read, ReadProgram):
            return self._answer(read, (asked,), reply.usage)

        again = self._rendered("generate_again", {"reason": read.reason, "edits": candidate is not None})
        asked_again = self._request(*asked.messages, said(reply), Message(role="user", **again._asdict()))
        second = self.model.complete(asked_again)
        remark = f"the generation agent was asked again, because of its first answer: {read.reason}"
        return self._answer(self._read(second, candidate), (asked, asked_again), reply.usage + second.usage, remark)

    def _question(self, template: str, problem: Problem, workload: Workload, facts: Mapping[str, object]) -> Request:
        """Return the question, shortened to the tokens that a prompt may have."""
        policy, measured = self.briefing.policy, self.briefing.measured
        given = {
            "differences": (),
            "remembered": self.briefing.remembered,
            "log_lines": LOG_LINES,
            "history": history.lines(self.attempts),
            "platform": self.platform.manifest,
            "example": self.platform.example_for(problem.source),
            **self._reference_facts(),
            **rule_facts(policy, workload),
            **task_facts(problem, workload, measured, self.attempts),
            **facts,
        }
        parts = ("system_generation", template)
        system, user = fitted(
            lambda given: [self._rendered(part, given) for part in parts], given, self.briefing.most_tokens
        )
        return self._request(
            Message(role="system", **system._asdict()),
            Message(role="user", **user._asdict()),
        )

    def _rendered(self, template: str, facts: Mapping[str, object]) -> Rendered:
        return render(template, template_set=self.briefing.template_set, **facts)

    def _read(self, reply: Reply, base: Candidate | None) -> ReadProgram | GenerationFailure:
        return parse_program(reply.text, reply.finish, base.source if base is not None else None)

    def _answer(
        self, read: ReadProgram | GenerationFailure, asked: Sequence[Request], usage: Usage, remark: str = ""
    ) -> Answer:
        requests = tuple(request.identity for request in asked)
        remarks = tuple(filter(None, [remark, read.remark if isinstance(read, ReadProgram) else ""]))
        if isinstance(read, GenerationFailure):
            return Answer(failure=read, requests=requests, usage=usage, remarks=remarks)
        candidate = Candidate(source=read.source, platform=self.platform.manifest.name)
        return Answer(candidate=candidate, requests=requests, usage=usage, remarks=remarks)

    def _request(self, *messages: Message) -> Request:
        return Request(
            agent="generation", model=self.model.name, messages=messages, max_tokens=MAX_TOKENS, step=self.step
        )

    def _reference_facts(self) -> dict[str, object]:
        if self.reference is None:
            return {"reference": None}
        origin = self.reference.platform
        translated = () if origin is None else counterparts(origin, self.platform.manifest)
        return {"reference": self.reference.source, "origin": origin, "counterparts": translated}
