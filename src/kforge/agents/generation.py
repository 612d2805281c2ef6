"""The generation agent F on top of a model."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kforge.agents.conversation import said
from kforge.agents.parsing import ReadProgram, parse_program
from kforge.models import LanguageModel, Message, Reply, Request
from kforge.platforms.concepts import counterparts
from kforge.prompts import render
from kforge.records import (
    Candidate,
    Correct,
    EvaluationPolicy,
    GenerationFailure,
    Problem,
    Recommendation,
    Usage,
    Workload,
)
from kforge.roles import Answer, Failed, Tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.platforms import Manifest, Platform

MAX_TOKENS = 32_768
"""Room for long thinking and a long program; reasoning models count their thinking."""


@dataclass(frozen=True)
class ReferenceProgram:
    """A program for the same problem on another platform."""

    source: str
    platform: Manifest | None = None
    """The platform that it is for, where that is known: then the agent is told what its terms are called here."""


class GenerationAgent:
    """Writes and repairs programs; every call is a fresh, lean conversation of one system and one user message, and two
    more where the answer cannot be read."""

    def __init__(
        self,
        model: LanguageModel,
        platform: Platform,
        *,
        policy: EvaluationPolicy | None = None,
        reference: ReferenceProgram | None = None,
        template_set: str = "structured",
    ) -> None:
        self.model = model
        self.platform = platform
        self.policy = policy or EvaluationPolicy()
        self.reference = reference
        self.template_set = template_set
        self.step = 0

    def at(self, step: int) -> Self:
        twin = copy(self)
        twin.step = step
        return twin

    def write(self, problem: Problem, workload: Workload) -> Answer:
        return self._ask("generate", problem=problem, workload=workload)

    def repair(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate | None,
        verdict: Failed,
        *,
        repeats: int = 0,
    ) -> Answer:
        return self._ask(
            "repair",
            candidate,
            problem=problem,
            workload=workload,
            candidate=candidate,
            verdict=verdict,
            repeats=repeats,
        )

    def optimize(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate,
        verdict: Correct,
        recommendation: Recommendation,
        tried: Sequence[Tried] = (),
    ) -> Answer:
        return self._ask(
            "optimize",
            candidate,
            problem=problem,
            workload=workload,
            candidate=candidate,
            verdict=verdict,
            recommendation=recommendation,
            tried=tried,
        )

    def _ask(self, template: str, base: Candidate | None = None, **facts: object) -> Answer:
        """Ask for a program, and once more when the answer cannot be read. `base`: what edits are applied to."""
        system = render(
            "system_generation",
            template_set=self.template_set,
            platform=self.platform.manifest,
            example=self.platform.example,
            precision=self.policy.precision,
            track=self.policy.track,
        )
        user = render(template, template_set=self.template_set, **self._reference_facts(), **facts)
        asked = self._request(
            Message(role="system", **system._asdict()),
            Message(role="user", **user._asdict()),
        )
        reply = self.model.complete(asked)
        read = self._read(reply, base)
        if isinstance(read, ReadProgram):
            return self._answer(read, (asked,), reply.usage)

        again = render("generate_again", template_set=self.template_set, reason=read.reason, edits=base is not None)
        asked_again = self._request(*asked.messages, said(reply), Message(role="user", **again._asdict()))
        second = self.model.complete(asked_again)
        remark = f"the generation agent was asked again, because of its first answer: {read.reason}"
        return self._answer(self._read(second, base), (asked, asked_again), reply.usage + second.usage, remark)

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
