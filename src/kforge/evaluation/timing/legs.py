"""Combines the legs of a head-to-head: races of the same two programs, in which each is the candidate in turn.

A race guards against its candidate only (`race.py`). With the roles exchanged in every second leg both programs have
the same guards, and whatever favours one role favours both programs alike. What a program gains only as a baseline is
no win: it must be faster also in the legs in which it is the candidate.

On a machine that other processes load all the time, most of a block's seconds are spent waiting for a processor, and
they vary by a factor of ten. The processor time of a program's busiest thread then varies by a few per cent. It is the
time that a call takes on an idle machine, as long as its threads do not wait for each other. So processor time decides
on such a machine, unless the clock contradicts it. If threads work one after another, the busiest one also has little
processor time. So if the winner spreads its work over more threads than the other program, the clock must show the win
as well.
"""

from __future__ import annotations

import math
import statistics
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
    """All legs so far. `rounds`: how many pairs of fresh processes they were timed in."""

    legs: list[Leg] = field(default_factory=list)
    rounds: int = 0

    def standing(self, variation: float, *, spent: float = 0.0) -> HeadToHead:
        """Return the finding so far.

        `variation` bounds the process-to-process variation of one pair of processes, as a logarithm. `spent` is the
        number of seconds that the session took so far, for the record.
        """
        if not any(leg.samples.baseline for leg in self.legs):
            return HeadToHead(finding="undecided", spent=spent, reason="nothing could be timed")
        ours, theirs = self._merged(challenger_leads=True), self._merged(challenger_leads=False)
        variation = variation / math.sqrt(max(1, self.rounds))
        speedup, bound = ours.speedup(variation), self._bound
        finding: Standing = "undecided"
        if speedup.low > bound:
            finding, reason = "faster", self._doubt(speedup.median, challenger_leads=True)
        elif theirs.speedup(variation).low > bound:
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
        """Whether other processes used the machine, and too few pairs were timed without them."""
        return self._pooled(challenger_leads=True).is_contended

    def is_settled(self, variation: float) -> bool:
        """Whether more pairs would not change the finding: it is decided, or the two are about equally fast."""
        if self.standing(variation).finding != "undecided":
            return True
        found = self._merged(challenger_leads=True).speedup()
        most = self._bound * math.exp(variation / math.sqrt(max(1, self.rounds)))
        return 1 / most <= found.low <= found.high <= most

    @property
    def _bound(self) -> float:
        """The ratio that the lower bound of a speedup must exceed."""
        return WIN_BOUND * (constants.CONTENDED_MARGIN if self.is_contended else 1.0)

    def _doubt(self, ratio: float, *, challenger_leads: bool) -> str:
        """Return why the program that seems faster by this ratio may not be; empty if there is no reason for doubt."""
        led = [leg.samples for leg in self.legs if leg.challenger_leads == challenger_leads]
        other = [leg.samples for leg in self.legs if leg.challenger_leads != challenger_leads]
        guarded = self._merged(challenger_leads=challenger_leads, led_only=True).speedup()
        if guarded.median <= WIN_BOUND or guarded.low <= 1.0:
            return f"the program that seems faster is at {times(guarded)} where it is the candidate of a race"
        for samples in led:
            if samples.stocked or samples.held_back is not None:
                return samples.unearned or samples.held_back or ""
        # the candidate of a race is asked for its weights and outputs, which is work outside timed calls. So what the
        # other program did in the same role is subtracted
        displaced = _mean(each.displaced for each in led) - _mean(each.displaced for each in other) / ratio
        timed = _mean(sum(_worked(each)) * each.calls_per_block for each in led)
        if displaced > constants.DISPLACED_SHARE and displaced * timed > constants.ONE_TIME_SECONDS:
            return f"the program that seems faster did {displaced:.0%} of the other's work outside its timed calls"
        outside = _mean(each.outside for each in led) - _mean(each.outside for each in other)
        if outside > constants.OUTSIDE_SHARE:
            return f"the program that seems faster used {outside:.0%} of the machine outside its timed calls"
        if self.is_contended:  # calls one by one are timed by the clock, which does not decide here
            return ""
        alone = [samples.one_by_one for samples in led if samples.gains_by_batching]
        slow = [found for found in alone if found is not None and found.low <= 1.0]
        return f"calls whose inputs come one by one are at {slow[0].median:.2f}x" if slow else ""

    def _contradiction(self, *, faster: bool) -> str:
        """Return why processor time does not decide on a loaded machine; empty if it decides."""
        wall = self._pooled(challenger_leads=faster)
        if any(leg.samples.has_helpers for leg in self.legs if leg.challenger_leads == faster):
            said = "the program that seems faster works in further processes"
            return f"other processes used {wall.busy:.0%} of the machine, and {said}"
        seen = wall.speedup()
        if _spreads_more(wall.overlap) and seen.low <= 1.0:
            said = "it has more threads, and whether they work at the same time cannot be seen"
            return f"its busiest thread works less; {said} while other processes use {wall.busy:.0%} of the machine"
        if seen.high < 1.0:
            return f"its processor time is lower, and by the clock it is at {times(seen)}"
        return ""

    def _merged(self, *, challenger_leads: bool, led_only: bool = False) -> PairedSamples:
        """Return the pairs of all legs with one program as the candidate. They are timed by the clock or, on a machine
        that is loaded all the time, by processor time. `led_only`: only pairs of legs in which it was the candidate."""
        return self._pooled(challenger_leads=challenger_leads, processor=self.is_contended, led_only=led_only)

    def _pooled(self, *, challenger_leads: bool, processor: bool = False, led_only: bool = False) -> PairedSamples:
        """Return the pairs of all legs as one set of samples, with one program as the candidate.

        `processor`: use processor time if it is known. `led_only`: only legs in which this program was the candidate.
        """
        pooled = PairedSamples(looks=self.rounds)
        for leg in self.legs:
            if led_only and leg.challenger_leads != challenger_leads:
                continue
            samples = leg.samples
            baseline, candidate = samples.baseline, samples.candidate
            uncharged = [0.0] * len(baseline)
            charges = samples.charges or uncharged
            if processor and samples.processor:
                baseline, candidate = map(list, zip(*samples.processor, strict=True))
                charges = uncharged
            overlap = samples.overlap
            if leg.challenger_leads != challenger_leads:
                baseline, candidate, charges = candidate, baseline, uncharged
                overlap = [(other, one) for one, other in overlap]
            pooled.overlap += overlap
            pooled.charges += charges
            pooled.baseline += baseline
            pooled.candidate += candidate
            pooled.foreign += samples.foreign
            pooled.busy += samples.busy * len(baseline)
            pooled.has_helpers |= samples.has_helpers
        pooled.busy /= max(1, len(pooled.baseline))
        return pooled


def _spreads_more(overlap: list[tuple[float, float]]) -> bool:
    """Return whether the candidate spreads its work over clearly more threads than the baseline."""
    if not overlap:
        return False
    baseline, candidate = (float(statistics.median(side)) for side in zip(*overlap, strict=True))
    return candidate > constants.MORE_THREADS * baseline


def _worked(samples: PairedSamples) -> list[float]:
    """Return the baseline's processor seconds per call for each pair; seconds by the clock if those are not known."""
    return [baseline for baseline, _ in samples.processor] or samples.baseline


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
