"""Profiles programs of a run, each once, in a quiet moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError
from kforge.evaluation.constants import BUSY_SHARE
from kforge.loop.profile_changes import changes
from kforge.loop.workshop import once
from kforge.records import Correct, Profile

if TYPE_CHECKING:
    from kforge.loop.workshop import Workshop
    from kforge.records import Attempt, Candidate
    from kforge.store import RunFolder


class Profiles:
    """The profiles of a run's correct programs. Each profile is kept with its attempt, and not taken again."""

    def __init__(self, run: RunFolder, workshop: Workshop) -> None:
        self.run = run
        self.workshop = workshop

    def of(self, attempt: Attempt) -> Profile:
        """Return the profile of a correct program. Raises EvaluationError if it cannot be taken."""
        candidate, verdict = attempt.candidate, attempt.verdict
        assert candidate is not None
        assert isinstance(verdict, Correct)
        seconds = verdict.timing.seconds.median if verdict.timing is not None else 0.0
        take = partial(self._take, candidate, seconds)
        return once(self.run, attempt.index, "profile", Profile, candidate, take)

    def why_slower(self, attempt: Attempt, before: Profile | None) -> Attempt:
        """Return the attempt; if it is slower than its parent, with the changes between their profiles.

        `before`: the parent's profile. No profile is taken if the analysis agent does not read the changes.
        """
        duel = attempt.head_to_head
        is_slower = duel is not None and duel.finding == "slower" and attempt.rival == attempt.parent
        if before is None or not is_slower or not self.workshop.analyst.reads_history:
            return attempt
        try:
            after = self.of(attempt)
        except EvaluationError:
            return attempt  # the program was timed; that it cannot be profiled changes no decision
        return attempt.model_copy(update={"why_slower": changes(before, after)})

    def _take(self, candidate: Candidate, seconds: float) -> Profile:
        """Return a profile, taken in a quiet moment. If no quiet moment came, the profile's text says so."""
        share = self.workshop.quiet.wait()
        profile = self.workshop.judge.profile(self.run.header.problem, candidate, seconds)
        if share <= BUSY_SHARE:
            return profile
        said = f"Disturbed: other processes used {share:.0%} of the machine, so small differences here mean nothing."
        return profile.model_copy(update={"digest_text": f"{said}\n\n{profile.digest_text}"})
