"""The performance analysis agent G on top of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.agents.markdown import without_thinking
from kforge.agents.parsing import parse_recommendation
from kforge.models import LanguageModel, Message, Reply, Request
from kforge.prompts import render, trim
from kforge.records import Candidate, Problem, Profile, Recommendation, Workload
from kforge.roles import Advice, Tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.platforms import Platform

MAX_TOKENS = 16_384
"""Room for a short recommendation, and for the thinking of reasoning models."""


class AnalysisAgent:
    """Reads the profile of a correct program and gives one recommendation."""

    def __init__(self, model: LanguageModel, platform: Platform, *, template_set: str = "structured") -> None:
        self.model = model
        self.platform = platform
        self.template_set = template_set

    def recommend(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate,
        profile: Profile,
        tried: Sequence[Tried] = (),
    ) -> Advice:
        """Ask the model, and once more when the answer cannot be read. After that use its prose as the action, labelled
        so."""
        system = render("system_analysis", template_set=self.template_set, platform=self.platform.manifest)
        user = render(
            "analyze",
            template_set=self.template_set,
            problem=problem,
            workload=workload,
            candidate=candidate,
            profile=profile,
            tried=tried,
        )
        asked = self._request(Message(role="system", **system._asdict()), Message(role="user", **user._asdict()))
        reply = self.model.complete(asked)
        read = parse_recommendation(reply.text)
        if isinstance(read, Recommendation):
            return Advice(recommendation=read, requests=(asked.identity,), usage=reply.usage)

        again = render("analyze_again", template_set=self.template_set, reason=read)
        said = Message(role="assistant", text=reply.text, fingerprint=reply.text)
        asked_again = self._request(*asked.messages, said, Message(role="user", **again._asdict()))
        second = self.model.complete(asked_again)
        read = parse_recommendation(second.text)
        return Advice(
            recommendation=read if isinstance(read, Recommendation) else _from_prose((second, reply), read),
            requests=(asked.identity, asked_again.identity),
            usage=reply.usage + second.usage,
        )

    def _request(self, *messages: Message) -> Request:
        return Request(agent="analysis", model=self.model.name, messages=messages, max_tokens=MAX_TOKENS)


def _from_prose(replies: Sequence[Reply], reason: str) -> Recommendation:
    """Return a recommendation made from a model's prose, where it does not keep to the required form; labelled so."""
    prose = next((text for reply in replies if (text := without_thinking(reply.text).strip())), "")
    return Recommendation(
        bottleneck="unstructured answer",
        action=trim(prose, 30, 2000) or "none given: look for the largest cost in the program yourself",
        rationale="not stated apart from the action",
        evidence=f"the performance analysis agent was asked twice and its answer could not be read: {reason}",
        expected_gain="not stated",
    )
