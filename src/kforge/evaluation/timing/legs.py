"""Combines the legs of a head-to-head: races of the same two programs, in which each is the candidate in turn.

A race guards against its candidate only (`race.py`). With the roles exchanged in every second leg both programs have
the same guards, and whatever favours one role favours both programs alike.

On a machine that others use all the while, a block's seconds are mostly those of waiting for a processor, and vary by a
factor of ten. The processor time of a program's busiest thread varies by a few per cent then, and is what a call takes
on a machine of its own, as long as its threads do not wait for each other. So it decides there, unless the clock
contradicts it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kforge.evaluation import constants
from kforge.evaluation.timing.pairs import PairedSamples
from kforge.records import WIN_BOUND, HeadToHead, times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.records import Standing


@dataclass(frozen=True)
class Leg:
    """One race of the two programs."""

    samples: PairedSamples
    challenger_leads: bool
    """Whether the challenger was the race's candidate; else its rival was."""


@dataclass
class Legs:
    """All legs so far. `sittings`: how many pairs of fresh processes they were timed in."""

    legs: list[Leg] = field(default_factory=list)
    sittings: int = 0

    def standing(self, luck: float, *, spent: float = 0.0) -> HeadToHead:
        """Return the finding so far. `luck` bounds process-to-process variation of one pair of processes."""
        if not any(leg.samples.baseline for leg in self.legs):
            return HeadToHead(finding="undecided", spent=spent, reason="nothing could be timed")
        ours, theirs = self._merged(challenger_leads=True), self._merged(challenger_leads=False)
        luck = luck / math.sqrt(max(1, self.sittings))
        speedup, bound = ours.speedup(luck), self._bound
        finding: Standing = "undecided"
        if speedup.low > bound:
            finding, reason = "faster", self._doubt(speedup.median, challenger_leads=True)
        elif theirs.speedup(luck).low > bound:
            finding, reason = "slower", self._doubt(1 / speedup.median, challenger_leads=False)
        else:
            reason = f"other processes used {ours.busy:.0%} of the machine" if self.is_contended else ""
        if finding != "undecided" and self.is_contended:
            reason = reason or self._contradiction(faster=finding == "faster")
        return HeadToHead(
            finding="undecided" if reason else finding,
            speedup=speedup,
            seconds=ours.candidate_seconds().median,
            rival_seconds=ours.baseline_seconds(),
            pairs=len(ours.baseline),
            spent=spent,
            busy=round(ours.busy, 3),
            reason=reason,
        )

    @property
    def is_contended(self) -> bool:
        """Whether other processes used the machine for nearly all of the time."""
        return self._pooled(challenger_leads=True).is_contended

    def is_settled(self, luck: float) -> bool:
        """Whether more pairs would not change the finding: it is decided, or the two are about equally fast."""
        if self.standing(luck).finding != "undecided":
            return True
        found = self._merged(challenger_leads=True).speedup()
        most = self._bound * math.exp(luck / math.sqrt(max(1, self.sittings)))
        return 1 / most <= found.low <= found.high <= most

    @property
    def _bound(self) -> float:
        """What the lower bound of a ratio must exceed."""
        return WIN_BOUND * (constants.CONTENDED_MARGIN if self.is_contended else 1.0)

    def _doubt(self, ratio: float, *, challenger_leads: bool) -> str:
        """Return why the program that seems faster by this ratio may not be; empty where nothing says so."""
        led = [leg.samples for leg in self.legs if leg.challenger_leads == challenger_leads]
        other = [leg.samples for leg in self.legs if leg.challenger_leads != challenger_leads]
        for samples in led:
            if samples.stocked or samples.held_back is not None:
                return samples.unearned or samples.held_back or ""
        # the candidate of a race is asked for its weights and outputs, which is work outside timed calls: what the
        # other program did in the same role is no sign of anything
        displaced = _mean(each.displaced for each in led) - _mean(each.displaced for each in other) / ratio
        timed = _mean(sum(_worked(each)) * each.calls_per_block for each in led)
        if displaced > constants.DISPLACED_SHARE and displaced * timed > constants.ONE_TIME_SECONDS:
            return f"the program that seems faster did {displaced:.0%} of the other's work outside its timed calls"
        outside = _mean(each.outside for each in led) - _mean(each.outside for each in other)
        if outside > constants.OUTSIDE_SHARE:
            return f"the program that seems faster used {outside:.0%} of the machine outside its timed calls"
        if self.is_contended:  # calls one by one are timed by the clock
            return ""
        alone = [samples.one_by_one for samples in led if samples.gains_by_batching]
        slow = [found for found in alone if found is not None and found.low <= 1.0]
        return f"calls whose inputs come one by one are at {slow[0].median:.2f}x" if slow else ""

    def _contradiction(self, *, faster: bool) -> str:
        """Return why processor time does not decide on a machine that others use; empty where it does."""
        wall = self._pooled(challenger_leads=faster)
        if wall.has_helpers:
            return f"other processes used {wall.busy:.0%} of the machine, and a program works in further processes"
        seen = wall.speedup()
        if seen.high < 1.0:
            return f"its processor time is lower, and by the clock it is at {times(seen)}"
        return ""

    def _merged(self, *, challenger_leads: bool) -> PairedSamples:
        """Return the pairs of all legs with one program as the candidate: by the clock or, on a machine that others use
        all the while, by processor time."""
        return self._pooled(challenger_leads=challenger_leads, processor=self.is_contended)

    def _pooled(self, *, challenger_leads: bool, processor: bool = False) -> PairedSamples:
        pooled = PairedSamples(looks=self.sittings)
        for leg in self.legs:
            samples = leg.samples
            baseline, candidate = samples.baseline, samples.candidate
            if processor and samples.processor:
                baseline, candidate = map(list, zip(*samples.processor, strict=True))
            if leg.challenger_leads != challenger_leads:
                baseline, candidate = candidate, baseline
            pooled.baseline += baseline
            pooled.candidate += candidate
            pooled.foreign += samples.foreign
            pooled.busy += samples.busy * len(baseline)
            pooled.has_helpers |= samples.has_helpers
        pooled.busy /= max(1, len(pooled.baseline))
        return pooled


def _worked(samples: PairedSamples) -> list[float]:
    """Return the baseline's processor seconds a call, pair by pair; its seconds where those are not known."""
    return [baseline for baseline, _ in samples.processor] or samples.baseline


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
