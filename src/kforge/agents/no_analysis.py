"""Replaces the performance analysis agent in a run without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kforge.records import Usage
from kforge.roles import UNADVISED, Advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Attempt, Candidate, Problem, Profile, Recommendation, Workload
    from kforge.roles import Tried


class NoAnalysis:
    """Gives no advice: calls no model and reads no profile. The generation agent chooses the next change itself."""

    reads_history = False

    def at(self, step: int, attempts: Sequence[Attempt] = ()) -> Self:  # noqa: ARG002 - the same for all attempts
        return self

    def recommend(
        self,
        problem: Problem,  # noqa: ARG002 - the protocol's arguments
        workload: Workload,  # noqa: ARG002
        candidate: Candidate,  # noqa: ARG002
        profile: Profile,  # noqa: ARG002
        tried: Sequence[Tried] = (),  # noqa: ARG002
        untried: Sequence[Recommendation] = (),  # noqa: ARG002
    ) -> Advice:
        return Advice(recommendation=UNADVISED, requests=(), usage=Usage())
