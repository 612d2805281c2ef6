"""Decides which timed pairs of blocks count, computes the speedup from them, and tells whether the speedup is decided.

Other processes only slow blocks down, by amounts that vary from block to block. The ratios of pairs that were timed
while other processes were busy vary ten to twenty times as much as those of quiet pairs (docs/timing.md). So only quiet
pairs count if there are enough of them. The two blocks of a pair are timed within some hundredths of a second: what
slows both down, such as a lower clock rate, does not change their ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kforge.evaluation import constants
from kforge.evaluation.timing.statistics import half_width, interval, speedup, widened
from kforge.records import WIN_BOUND

if TYPE_CHECKING:
    from kforge.evaluation.timing.statistics import Samples
    from kforge.platforms import Limit
    from kforge.records import Interval


@dataclass
class PairedSamples:
    """Seconds per call of both sides, one number for each pair of blocks, and the conditions under which they were
    measured."""

    baseline: list[float] = field(default_factory=list)
    candidate: list[float] = field(default_factory=list)
    charges: list[float] = field(default_factory=list)
    """For each pair: how much the logarithm of its ratio falls if only the candidate is charged for the time that
    stopping a worker usually takes (`BlockClocks.charges`). Empty if that is not known."""
    foreign: list[float] = field(default_factory=list)
    """Share of the machine that other processes used in the window of pairs around each pair."""
    processor: list[tuple[float, float]] = field(default_factory=list)
    """Processor seconds per call of the busiest thread of baseline and candidate, pair by pair; empty on a device."""
    overlap: list[tuple[float, float]] = field(default_factory=list)
    """For baseline and candidate in each pair: processor time of all threads, as a multiple of the busiest one's."""
    paced: list[tuple[float, float]] = field(default_factory=list)
    """Seconds per call of baseline and candidate in each pair of paced blocks, with the cost of starting each call."""
    around: float = 0.0
    """Seconds per call that the worker's own code takes before and after the calls of a block. A program that sends the
    worker's answer itself could save them unnoticed."""
    around_paced: float = 0.0
    """Seconds that the worker's own code takes before and after a paced call."""
    proves_alone: bool = False
    """Whether paced blocks, too, must show that the program is faster. False on devices, where the time to switch
    between processes varies too much for that."""
    calls_per_block: int = 1
    """Calls in each timed block."""
    looks: int = 0
    """How often the interval was examined to decide whether to go on."""
    decided: bool = False
    """Whether timing ended because more pairs would not change the result, and not because the time was over."""
    whereabouts: list[str] = field(default_factory=list)
    """The files whose code the candidate was running when it was stopped at random moments."""
    busy: float = 0.0
    """Share of the machine that other processes used during the whole timing."""
    has_helpers: bool = False
    """Whether the candidate started processes; their load counts as that of other processes."""
    outside: float = 0.0
    """Share of the machine that the candidate used outside its timed calls, beyond what the baseline used."""
    displaced: float = 0.0
    """Work of the candidate outside its timed calls, as a share of the baseline's timed work; 0 on a device."""
    stocked: int = 0
    """Bytes of memory in which the candidate's outputs lay, if it seems to have filled them in advance; otherwise 0."""
    limits: set[Limit] = field(default_factory=set)
    """What slowed the device down during timing, such as heat or a power limit."""

    @property
    def labels(self) -> list[str]:
        """The labels that a verdict gets because of these samples."""
        found = {
            "noisy": bool(self.baseline) and not self.decided,
            "busy_machine": self._is_busy,
            "one_by_one": self.gains_by_batching,
            "uneven": self.is_uneven,
            "throttled": bool(self.limits),
        }
        return [label for label, holds in found.items() if holds]

    @property
    def one_by_one(self) -> Interval | None:
        """The speedup by paced blocks; None if no paced block was timed.

        The cost of starting each call is subtracted, as measured on the baseline. The lower bound also subtracts what a
        program could gain by sending the worker's answer itself.
        """
        measured = self._measured_alone
        if measured is None:
            return None
        low = measured.low * math.exp(-_allowance(self._alone, self.around_paced))
        return measured.model_copy(update={"low": low})

    @property
    def is_open_alone(self) -> bool:
        """Whether more paced blocks could still decide whether the program is faster one call at a time."""
        measured = self._measured_alone
        if measured is None:
            return False
        most = measured.median * math.exp(-_allowance(self._alone, self.around_paced))
        # a lower bound that would exceed one if the interval were narrow
        unproven = self.one_by_one is not None and self.one_by_one.low <= 1.0 < most
        return unproven or measured.low <= 1.0 < measured.high

    @property
    def _measured_alone(self) -> Interval | None:
        """The speedup by paced blocks, without subtracting what a program could gain by sending the worker's answer
        itself. None if no paced block was timed.

        Beyond MOST_PACED pairs the interval is wider, because it was examined to decide whether to go on.
        """
        if not self.paced:
            return None
        found = speedup(self._paced_ratios, np.random.default_rng(0))
        return widened(found, looks=1) if len(self.paced) > constants.MOST_PACED else found

    @property
    def gains_by_batching(self) -> bool:
        """Whether the speedup is clearly larger in blocks, where all inputs are there at once, than in paced blocks."""
        alone = self.one_by_one
        return alone is not None and alone.high < self._in_blocks.low

    @property
    def is_uneven(self) -> bool:
        """Whether a program that is faster in the median block has rare blocks in which it takes far longer.

        A program could compute many outputs in advance in one block, and return them in others. If this is true, the
        speedup of all timed calls together counts.
        """
        in_all = self._in_all

        def exceeds(seeming: float) -> bool:
            return seeming > 1.0 and (in_all < seeming * (1 - constants.UNEVEN) or in_all <= WIN_BOUND < seeming)

        # an interval takes a hundred times as long as a median, and its lower end is not higher
        return bool(self.baseline) and exceeds(math.exp(np.median(self._block_ratios))) and exceeds(self._in_blocks.low)

    @property
    def _in_all(self) -> float:
        """The speedup of all calls together, in which a rare long block counts in full.

        If the candidate started processes, pairs that are not quiet count, too: these processes could make the machine
        busy whenever a long block comes.
        """
        if not self.baseline:
            return 1.0
        sides = (self.baseline, self.candidate)
        baseline, candidate = map(np.asarray if self.has_helpers else self._counting, sides)
        return float(baseline.sum() / candidate.sum())

    @property
    def _excess(self) -> float:
        """For uneven samples: what is subtracted from the log-ratios, so that their median is that of all calls
        together. Else 0."""
        return float(np.median(self._block_ratios)) - math.log(self._in_all) if self.is_uneven else 0.0

    @property
    def doubt(self) -> str | None:
        """Why the ratio of these samples may not be the ratio of the two programs; None if there is no such reason.

        Other processes do not affect both sides alike: a program with more parallel regions waits more often. Nor do
        clock rates that earlier work has lowered. A power limit that a program reaches by its own work is part of its
        speed, and only gives a label.
        """
        if self.is_contended:
            return f"other processes used {self.busy:.0%} of the machine during timing"
        if self.unearned is not None:
            return self.unearned
        alone = self.one_by_one
        unproven = self.proves_alone and alone is not None and alone.low <= 1.0
        if alone is not None and (unproven or (self.gains_by_batching and not self._wins_alone)):
            return (
                f"calls whose inputs come one by one are at {alone.median:.2f}x ({alone.low:.2f} to {alone.high:.2f}), "
                f"those of a block at {self._in_blocks.median:.2f}x"
            )
        return self.held_back

    @property
    def is_contended(self) -> bool:
        """Whether other processes used the machine, and too few pairs were timed without them."""
        return self._is_busy and not self.has_quiet_pairs

    @property
    def unearned(self) -> str | None:
        """Why the candidate may have done its work outside the timed calls; None where it did not."""
        if self.outside > constants.OUTSIDE_SHARE:
            return f"the program used {self.outside:.0%} of the machine outside its timed calls"
        if self.displaced > constants.DISPLACED_SHARE:
            return f"the program did {self.displaced:.0%} of the baseline's timed work outside its timed calls"
        if self.stocked:
            return f"its outputs lay in {self.stocked / 2**20:.0f} MiB of memory, as if it had filled them in advance"
        return None

    @property
    def held_back(self) -> str | None:
        """What slowed the device down, other than the work of the program; None where nothing did."""
        imposed = sorted({limit.reason for limit in self.limits if not limit.own})
        return f"the device was held back by {' and '.join(imposed)} during timing" if imposed else None

    @property
    def has_quiet_pairs(self) -> bool:
        """Whether enough pairs were timed while other processes used at most BUSY_SHARE of the machine."""
        return int(self._quiet.sum()) >= min(len(self.foreign), constants.QUIET_PAIRS) > 0

    @property
    def log_ratios(self) -> Samples:
        """log(baseline / candidate) of the pairs that count: the quiet ones if there are enough, otherwise all.

        The ratios of paced blocks are used instead if the program gains by seeing several inputs at once.
        """
        return self._paced_ratios if self.gains_by_batching else self._block_ratios - self._excess

    @property
    def allowance(self) -> float:
        """The largest part of the speedup, as a logarithm, that a program could gain by sending the worker's answer
        itself."""
        if self.gains_by_batching:
            return _allowance(self._alone, self.around_paced)
        return _allowance(self._counting(self.candidate), self.around)

    def _charged(self, found: Interval) -> Interval:
        """Return the interval with a lower bound that holds as well if only the candidate is charged for the time that
        stopping a worker usually takes."""
        if not self.charges or self.gains_by_batching:
            return found
        ratios = self.log_ratios - self._counting(self.charges)
        return found.model_copy(update={"low": min(found.low, speedup(ratios, np.random.default_rng(0)).low)})

    def speedup(self, variation: float = 0.0) -> Interval:
        """Return the speedup with its interval, which is widened for repeated examinations.

        `variation` bounds the process-to-process variation, as a logarithm (`statistics.widened`). If the samples are
        uneven, the upper bound stays that of the median block, so that a program that is mostly faster is not called
        slower.
        """
        found = widened(self._charged(self._plain), self.looks, variation, self.allowance)
        excess = 0.0 if self.gains_by_batching else self._excess
        return found.model_copy(update={"high": found.high * math.exp(excess)})

    @property
    def _wins_alone(self) -> bool:
        """Whether paced blocks alone prove that the program is faster."""
        return self.one_by_one is not None and self.one_by_one.low > WIN_BOUND

    @property
    def _block_ratios(self) -> Samples:
        """log(baseline / candidate) of the timed pairs that count."""
        ratios: Samples = np.log(self._counting(self.baseline)) - np.log(self._counting(self.candidate))
        return ratios

    @property
    def _in_blocks(self) -> Interval:
        """The speedup by timed blocks."""
        return widened(speedup(self._block_ratios, np.random.default_rng(0)), self.looks)

    @property
    def _alone(self) -> Samples:
        """Seconds per call of the candidate, from each pair of paced blocks, without the cost of starting each call.

        A baseline that is slower in blocks than in paced ones, as in disturbed blocks, shows no such cost.
        """
        baseline, candidate = np.asarray(self.paced).T
        seconds = candidate - np.maximum(baseline - self._baseline_in_blocks, 0)
        # where starting a call takes much longer than the call, the difference of two calls may be larger than either
        alone: Samples = np.maximum(seconds, np.median(self._counting(self.candidate)) / 2)
        return alone

    @property
    def _baseline_alone(self) -> Samples:
        """Seconds per call of the baseline, from each pair of paced blocks, without the cost of starting each call."""
        baseline, _ = np.asarray(self.paced).T
        alone: Samples = np.minimum(baseline, self._baseline_in_blocks)
        return alone

    @property
    def _baseline_in_blocks(self) -> float:
        return float(np.median(self._counting(self.baseline)))

    @property
    def _paced_ratios(self) -> Samples:
        """log(baseline / candidate) from each pair of paced blocks."""
        ratios: Samples = np.log(self._baseline_alone / self._alone)
        return ratios

    @property
    def is_usable(self) -> bool:
        """Whether enough pairs were timed on a quiet machine to conclude anything."""
        return self.has_quiet_pairs or not self._is_disturbed

    def is_tight(self, most: float = constants.HALF_WIDTH) -> bool:
        """Return whether the interval's half width is at most this share of the median, so that more pairs would change
        little."""
        return self.is_usable and half_width(widened(self._plain, self.looks)) <= most

    @property
    def _plain(self) -> Interval:
        """The speedup as measured, without anything that a claim must allow for."""
        return speedup(self.log_ratios, np.random.default_rng(0))

    def is_decided(self, variation: float) -> bool:
        """Return whether more pairs would not change the finding about the first baseline."""
        # what a program could gain by sending the worker's answer itself moves the bound: more pairs do not reduce it
        measured = widened(self._charged(self._plain), self.looks)
        return self.is_tight() or (self.is_usable and decides(measured, variation, self.allowance))

    def baseline_seconds(self) -> float:
        """Return the median seconds of one call of the baseline: of paced calls where these give the speedup."""
        return float(np.median(self._baseline_alone)) if self.gains_by_batching else self._baseline_in_blocks

    def candidate_seconds(self) -> Interval:
        """Return the seconds of one call of the candidate, with an interval."""
        seconds = self._alone if self.gains_by_batching else self._counting(self.candidate) * math.exp(self._excess)
        return interval(seconds, np.random.default_rng(0))

    @property
    def _is_busy(self) -> bool:
        return self.busy > constants.BUSY_SHARE

    @property
    def _is_disturbed(self) -> bool:
        """Whether a pair was timed while other processes were busy."""
        return not bool(self._quiet.all())

    @property
    def _quiet(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """For each pair, whether other processes used at most BUSY_SHARE of the machine."""
        return np.asarray(self.foreign) <= constants.BUSY_SHARE

    def _counting(self, seconds: list[float]) -> Samples:
        """Return the seconds of the pairs that count: the quiet ones if there are enough, otherwise all."""
        everything: Samples = np.asarray(seconds)
        return everything[self._quiet] if self._is_disturbed and self.has_quiet_pairs else everything


def _allowance(seconds: Samples, around: float) -> float:
    """Return the logarithm of the speedup that a program could gain by saving `around` seconds per call."""
    return float(np.log1p(around / np.median(seconds)))


def decides(value: Interval, variation: float, allowance: float = 0.0) -> bool:
    """Return whether an interval settles the question: the program is faster, it is slower, or there is no real
    difference.

    `variation` and `allowance` are logarithms that a claim must allow for (`statistics.widened`).
    """
    low, high, bound = math.log(value.low), math.log(value.high), math.log(WIN_BOUND) + variation
    win = bound + allowance
    return low > win or high < -bound or -bound <= low <= high <= win
