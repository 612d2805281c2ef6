"""One round of the loop: what the agents make for the next moves, before the judge sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kforge.errors import NothingLeft, WaitingForReplies
from kforge.loop.profiles import Profiles
from kforge.loop.questions import Questions
from kforge.records import BELIEVABLE_SHARE, Correct, Usage
from kforge.roles import Advice
from kforge.search import Optimize, Repair, Write, root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kforge.loop.limits import RunLimits
    from kforge.loop.workshop import Workshop
    from kforge.records import Attempt, Profile, Recommendation
    from kforge.roles import Answer, Generator
    from kforge.search import Move
    from kforge.store import RunFolder


class ProgramExhausted(Exception):
    """Raised when the analysis agent has nothing left worth trying for a program."""

    def __init__(self, program: int, end: NothingLeft) -> None:
        """`program`: the index of its attempt. `end`: what the agent said."""
        super().__init__(program, end)
        self.program = program
        self.end = end


class NearRoofline(Exception):
    """Raised when a program is nearly as fast as the roofline allows."""


@dataclass(frozen=True)
class Draft:
    """What the agents made for one attempt."""

    move: Move
    profile: Profile | None
    """The profile of the program that is improved, in an optimization pass."""
    advice: Advice | None
    """The recommendation that was followed, in an optimization pass. Its cost counts for the attempt that asked."""
    answer: Answer


class Round:
    """Moves that do not depend on each other's results. Their questions may be asked at the same time."""

    def __init__(
        self, run: RunFolder, workshop: Workshop, attempts: Sequence[Attempt], moves: Sequence[Move], limits: RunLimits
    ) -> None:
        self.run = run
        self.workshop = workshop
        self.attempts = tuple(attempts)
        self._known = self.attempts[: workshop.search.begin_of_round(len(attempts))]
        self.moves = moves
        self.limits = limits
        self._questions = Questions(workshop.at_once if len(moves) > 1 and not limits.counts_cost else 1)
        self._advice: dict[int, Callable[[], Advice]] = {}

    def drafts(self) -> Iterator[Draft]:
        """Yield a draft for each move, in order. While one is judged, the questions of the others are in flight.

        Raises NearRoofline, ProgramExhausted, and what the agents raise. Where several questions wait for replies,
        WaitingForReplies names all of them.
        """
        first = len(self.attempts)
        made = [self._begin(index, move) for index, move in enumerate(self.moves, first)]
        for number, finish in enumerate(made):
            try:
                draft = finish()
            except WaitingForReplies as waiting:
                raise _all_waiting(waiting, made[number + 1 :]) from waiting
            yield draft

    def finish(self) -> None:
        """Wait for the questions in flight. Answers that no attempt uses are in the exchange, and in the ledger."""
        self._questions.finish()

    def _begin(self, index: int, move: Move) -> Callable[[], Draft]:
        """Ask for one move, and return a function that waits for the draft. Raises NearRoofline if little can be
        gained."""
        profile, advice = None, None
        if isinstance(move, Optimize):
            profile = self._profile(move.parent)
            if self.limits.roofline_share <= profile.roofline_share <= BELIEVABLE_SHARE:
                raise NearRoofline(f"near the roofline: {profile.roofline_share:.0%} of what the device allows")
            advice = self._advice[index] = self._advise(index, move, profile)
        answer = self._questions.ask(partial(self._generate, index, move, advice), after=advice)

        def finish() -> Draft:
            return Draft(move, profile, advice() if advice is not None else None, answer())

        return finish

    def _profile(self, parent: Attempt) -> Profile:
        """Return the profile of a program; each program is profiled once in a run."""
        for attempt in self.attempts:
            if attempt.parent == parent.index and attempt.profile is not None:
                return attempt.profile
        return Profiles(self.run, self.workshop).of(parent)

    def _advise(self, index: int, move: Optimize, profile: Profile) -> Callable[[], Advice]:
        """Return a function that waits for the advice which a move follows."""
        if move.idea is not None:
            return partial(_free, move.idea)
        if move.advised_by is None:
            return self._questions.ask(partial(self._recommend, index, move, profile))
        if move.advised_by >= len(self.attempts):
            asked = self._advice[move.advised_by]
            return lambda: _shared(asked(), move.rank)
        sibling = self.attempts[move.advised_by]
        assert sibling.recommendation is not None
        return partial(_free, _ranked((sibling.recommendation, *sibling.others), move.rank))

    def _recommend(self, index: int, move: Optimize, profile: Profile) -> Advice:
        assert move.parent.candidate is not None
        self.workshop.watch("asking the performance analysis agent")
        header, agent = self.run.header, self.workshop.analyst.at(index, self._known)
        facts = header.problem, header.workload, move.parent.candidate, profile
        try:
            advice = agent.recommend(*facts, move.tried, move.untried)
        except NothingLeft as end:
            raise ProgramExhausted(move.parent.index, end) from end
        return advice

    def _generate(self, index: int, move: Move, advice: Callable[[], Advice] | None) -> Answer:
        recommendation = advice().recommendation if advice is not None else None
        self.workshop.watch("asking the generation agent")
        first = index if isinstance(move, Write) else root(self.attempts, move.parent).index
        return self._ask(self.workshop.writer(first).at(index, self._known), move, recommendation)

    def _ask(self, agent: Generator, move: Move, recommendation: Recommendation | None) -> Answer:
        problem, workload = self.run.header.problem, self.run.header.workload
        if isinstance(move, Optimize):
            candidate, verdict = move.parent.candidate, move.parent.verdict
            assert recommendation is not None
            assert candidate is not None
            assert isinstance(verdict, Correct)
            return agent.optimize(problem, workload, candidate, verdict, recommendation, move.tried)
        if isinstance(move, Repair):
            verdict = move.parent.verdict
            assert not isinstance(verdict, Correct)
            return agent.repair(problem, workload, move.parent.candidate, verdict, repeats=move.repeats)
        return agent.write(problem, workload)


def _free(idea: Recommendation, labels: tuple[str, ...] = ()) -> Advice:
    """Return an idea as advice without a cost, because its cost was counted before."""
    return Advice(recommendation=idea, requests=(), usage=Usage(), labels=labels)


def _shared(advice: Advice, rank: int) -> Advice:
    """Return the idea of this rank in the advice that a sibling asked for."""
    return _free(_ranked((advice.recommendation, *advice.others), rank), advice.labels)


def _ranked(ideas: Sequence[Recommendation], rank: int) -> Recommendation:
    return ideas[rank % len(ideas)]


def _all_waiting(first: WaitingForReplies, others: Sequence[Callable[[], Draft]]) -> WaitingForReplies:
    """Ask the other questions of the round as well, and return one error that names all waiting questions."""
    pending, empty = list(first.pending), list(first.empty)
    for finish in others:
        try:
            finish()
        except WaitingForReplies as waiting:
            pending += waiting.pending
            empty += waiting.empty
    return WaitingForReplies(tuple(dict.fromkeys(pending)), tuple(dict.fromkeys(empty)))
