"""The performance analysis agent G on top of a model."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Self

from kforge.agents import history
from kforge.agents.briefing import Briefing
from kforge.agents.conversation import said
from kforge.agents.evidence import unfounded
from kforge.agents.facts import task_facts
from kforge.agents.markdown import without_thinking
from kforge.agents.recommendations import Ideas, NothingToTry, Unreadable, parse_recommendations
from kforge.agents.sizing import fitted
from kforge.models import IMAGES_REFUSED, Image, LanguageModel, Message, Reply, Request
from kforge.profiling.picture import draw
from kforge.prompts import render, trim
from kforge.records import Attempt, Candidate, Problem, Profile, Recommendation, Usage, Workload
from kforge.roles import IMAGES_NOT_SEEN, Advice, NothingWorthTrying, Tried

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kforge.platforms import Platform

MAX_TOKENS = 16_384
"""Room for a short recommendation, and for the thinking of reasoning models."""
PROFILE_LINES = 110
"""Most lines of a profile in a prompt: all of a usual page, with the lines and loops of authored kernels."""


class AnalysisAgent:
    """Reads the profile of a correct program and gives one recommendation, with up to two further ideas."""

    reads_history = True

    def __init__(
        self,
        model: LanguageModel,
        platform: Platform,
        *,
        briefing: Briefing | None = None,
        profile_as: str = "text",
        images: Sequence[Image] = (),
    ) -> None:
        """`profile_as`: `text`, `image` or `both`. `images`: the user's images, which go with every question."""
        self.model = model
        self.platform = platform
        self.briefing = briefing or Briefing()
        self.profile_as = profile_as
        self.images = tuple(images)
        self._refused = set[str]()  # shared with the agent's copies for other attempts
        self.step = 0
        self.attempts: tuple[Attempt, ...] = ()

    def at(self, step: int, attempts: Sequence[Attempt] = ()) -> Self:
        twin = copy(self)
        twin.step = step
        twin.attempts = tuple(attempts)
        return twin

    def recommend(
        self,
        problem: Problem,
        workload: Workload,
        candidate: Candidate,
        profile: Profile,
        tried: Sequence[Tried] = (),
        untried: Sequence[Recommendation] = (),
    ) -> Advice:
        """Ask the model for recommendations, and once more if the answer cannot be read.

        If the second answer cannot be read either, its prose becomes the action of a recommendation with the bottleneck
        `unstructured answer`. A model that refuses images is asked with text alone, and the advice gets the label
        `images_not_seen`. Raises NothingWorthTrying if the model sees nothing worth trying, and gives evidence for it.
        """
        facts = {
            **task_facts(problem, workload, self.briefing.measured, self.attempts),
            "candidate": candidate,
            "profile": profile,
            "profile_lines": PROFILE_LINES,
            "disturbed": "",
            "history": history.lines(self.attempts),
            "differences": history.differences(self.attempts, candidate),
            "given_up": [history.told(trial) for trial in tried if trial.given_up],
            "undecided": [history.told(trial) for trial in tried if not trial.given_up],
            "waiting": untried,
        }
        if not self.images and self.profile_as == "text":
            return self._advice(tried, self._question(facts))
        refused: tuple[str, ...] = ()
        cost = Usage()
        if not self._refused:
            asked = self._question(facts, drawn=self._drawn(profile, workload), given=self.images)
            reply = self.model.complete(asked)
            if reply.finish != IMAGES_REFUSED:
                return self._advice(tried, asked, reply)
            # remembered, so that the next questions of the run are asked without images
            self._refused.add(asked.identity)
            refused, cost = (asked.identity,), reply.usage
        try:
            advice = self._advice(tried, self._question(facts))
        except NothingWorthTrying as end:
            asked_for = (*refused, *end.requests)
            raise NothingWorthTrying(end.reason, end.evidence, asked_for, cost + end.usage) from end
        update = {
            "requests": (*refused, *advice.requests),
            "usage": cost + advice.usage,
            "labels": (IMAGES_NOT_SEEN,),
        }
        return advice.model_copy(update=update)

    def _advice(self, tried: Sequence[Tried], asked: Request, reply: Reply | None = None) -> Advice:
        """Return the ideas in the model's answer to a question. `reply`: the answer, if the model was asked already.

        Raises NothingWorthTrying if that is the answer.
        """
        reply = reply or self.model.complete(asked)
        requests: tuple[str, ...] = (asked.identity,)
        usage, remarks = reply.usage, tuple[str, ...]()
        read = parse_recommendations(reply.text, reply.finish)
        if isinstance(read, Unreadable):
            again = render("analyze_again", template_set=self.briefing.template_set, reason=read)
            asked_again = self._request(*asked.messages, said(reply), Message(role="user", **again._asdict()))
            second = self.model.complete(asked_again)
            remarks = (f"the performance analysis agent was asked again, because of its first answer: {read}",)
            requests, usage = (*requests, asked_again.identity), usage + second.usage
            read = parse_recommendations(second.text, second.finish)
            if isinstance(read, Unreadable):
                prose = _from_prose((second, reply), read)
                return Advice(recommendation=prose, requests=requests, usage=usage, remarks=remarks)
            reply = second
        if isinstance(read, NothingToTry):
            said_with = "; ".join([read.evidence, *_doubts(read.evidence, asked, reply)])
            raise NothingWorthTrying(read.reason, said_with, requests, usage)
        first, *others = _not_given_up(read, tried)
        remarks = (*remarks, *_doubts(first.evidence, asked, reply))
        return Advice(recommendation=first, others=tuple(others), requests=requests, usage=usage, remarks=remarks)

    def _drawn(self, profile: Profile, workload: Workload) -> tuple[Image, ...]:
        """Return the profile as one image; none if profiles are given as text only."""
        if self.profile_as == "text":
            return ()
        return (Image.of(draw(profile, workload), measured=True),)

    def _question(
        self, facts: Mapping[str, object], *, drawn: tuple[Image, ...] = (), given: tuple[Image, ...] = ()
    ) -> Request:
        """Return the question, with or without images. Without a drawn profile, it has the profile as text."""
        shown = {
            "text": not drawn or self.profile_as == "both",
            "drawn": len(drawn),
            "given": len(given),
        }
        everything = {
            **facts,
            "images": shown,
            "platform": self.platform.manifest,
            "precision": self.briefing.policy.precision,
        }
        parts = ("system_analysis", "analyze")
        template_set = self.briefing.template_set
        system, user = fitted(
            lambda given: [render(part, template_set=template_set, **given) for part in parts],
            everything,
            self.briefing.most_tokens,
        )
        return self._request(
            Message(role="system", **system._asdict()),
            Message(role="user", **user._asdict(), images=(*drawn, *given)),
        )

    def _request(self, *messages: Message) -> Request:
        return Request(
            agent="analysis", model=self.model.name, messages=messages, max_tokens=MAX_TOKENS, step=self.step
        )


def _not_given_up(ideas: Ideas, tried: Sequence[Tried]) -> Ideas:
    """Return the ideas without those that are given up; all of them where nothing else is left."""
    past = {" ".join(each.recommendation.action.lower().split()) for each in tried if each.given_up}
    return tuple(each for each in ideas if " ".join(each.action.lower().split()) not in past) or ideas


def _doubts(evidence: str, asked: Request, reply: Reply) -> tuple[str, ...]:
    """Return a remark if the evidence names quantities that the agent was not shown.

    A replayed answer, which cost no call, is not checked: it was given for the profile of another run.
    """
    shown = "\n".join(message.text for message in asked.messages)
    invented = unfounded(evidence, shown) if reply.usage.requests else ()
    if not invented:
        return ()
    return (f"the recommendation's evidence names {', '.join(invented)}, which is not in the profile",)


def _from_prose(replies: Sequence[Reply], reason: str) -> Recommendation:
    """Return a recommendation made from the prose of a model whose answers do not have the required form."""
    prose = next((text for reply in replies if (text := without_thinking(reply.text).strip())), "")
    return Recommendation(
        bottleneck="unstructured answer",
        action=trim(prose, 30, 2000) or "none given: look for the largest cost in the program yourself",
        rationale="not stated apart from the action",
        evidence=f"the performance analysis agent was asked twice and its answer could not be read: {reason}",
        expected_gain="not stated",
    )
