"""One candidate's way through the referee: build, verify, time, trace, compare. (torch)"""

from __future__ import annotations

import math
import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kforge.errors import EvaluationError, ProblemError
from kforge.evaluation.block_check import BlockCheck
from kforge.evaluation.budget import gigabytes
from kforge.evaluation.constants import (
    COMPILED_HALF_WIDTH,
    CUSTOM_SHARE,
    HOARD,
    LEAN_CALLS,
    LEAST_LOOKS,
    LOOK_PATIENCE,
    LOOK_SECONDS,
    LOOKS,
    MAX_CALLS_PER_BLOCK,
    PHYSICS,
    TELLING_LOOKS,
    TRACED_BLOCK_SECONDS,
    TRACED_BYTES,
    TRACED_CALLS,
    TRACED_SHARE,
    WATCHED_CALLS,
    WATCHED_TRIES,
)
from kforge.evaluation.contestant import OUT_OF_MEMORY, Contestant, Fault
from kforge.evaluation.correctness import CorrectnessCheck
from kforge.evaluation.kernel_trace import Seen
from kforge.evaluation.lint import voids_speed
from kforge.evaluation.orders import BaselineFailedError
from kforge.evaluation.pairs import PairedSamples, decides
from kforge.evaluation.physics import bytes_that_matter
from kforge.evaluation.reference import subseed
from kforge.evaluation.scan import ENTRY
from kforge.evaluation.stages import WORDS
from kforge.evaluation.statistics import chained_speedup, widened
from kforge.evaluation.timing import Race, sets_in_memory
from kforge.evaluation.trace import census
from kforge.records import Comparison, Correct, Rejected, RuntimeFailure, Timing, Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.baselines import CompileBaseline
    from kforge.evaluation.bench import Bench, Stages
    from kforge.platforms import KernelOwner
    from kforge.problems.instance import Instance
    from kforge.records import Candidate, Interval


class Trial:
    """One candidate on one problem."""

    def __init__(self, bench: Bench, instance: Instance, candidate: Candidate, stages: Stages) -> None:
        self.bench = bench
        self.instance = instance
        self.candidate = candidate
        self.stages = stages
        self.secret = secrets.token_hex(16)
        self.trace: Trace | None = None
        self.conditions: dict[str, dict[str, str]] = {}
        """What the device says about itself, by moment."""
        self.unavailable: dict[str, str] = {}
        """Baselines that could not be measured."""
        self._workers: list[Contestant] = []

    def run(self) -> tuple[Any, tuple[str, ...], dict[str, tuple[float, ...]]]:
        """The verdict with its labels and raw samples; a fault of the program is a verdict, not an exception."""
        try:
            with self.stages("start"):
                contestant = self.bench.contestant(self.candidate.digest)
        except Fault as fault:  # before any foreign code ran: ours, not the candidate's
            last = getattr(fault.verdict, "log", "").strip().rpartition("\n")[2]
            raise EvaluationError(f"a worker did not start: {fault.verdict.reason}{': ' * bool(last)}{last}") from None
        self._workers.append(contestant)
        try:
            # only now: two that make themselves ready at once hold each other up in the driver
            eager = self.bench.early_trusted(self.instance)
            self._workers += [eager] if eager is not None else []
            with self.stages("build"):
                contestant.load(self.candidate.source, "candidate.py", ENTRY)
            with self.stages("verify"):
                check = CorrectnessCheck(
                    self.instance, contestant, secret=self.secret, precision=self.bench.court.precision,
                    cut=self.bench.economy.cut, say=self.bench.say,
                )  # fmt: skip
                correctness = check.run()
                contestant.must_be_quiet("while it had no order")
            with self.stages("time"):
                samples = self._race(contestant, eager, check)
            self._obeys_physics(samples, check)
            with self.stages("trace"):
                traced = self._whose_work(contestant, samples, check)
        except Fault as fault:
            self._must_have_had_memory(contestant, fault)
            return fault.verdict, (), {}
        except (torch.OutOfMemoryError, EvaluationError) as error:
            return self._hoarder(contestant, error), (), {}
        finally:
            self._end_workers()
        unseen = () if contestant.reach.sees else ("outputs_not_seen",)
        labels = [*correctness.labels, *samples.labels, *traced, *unseen]
        with self.stages("compare"):
            comparisons = self._comparisons(samples, labels)
        timing = Timing(seconds=samples.candidate_seconds(), comparisons=comparisons, pairs=len(samples.baseline))
        verdict = Correct(
            max_error=check.worst.error,
            tolerance=check.worst.tolerance,
            cases=correctness.cases,
            timing=timing,
        )
        raw = {
            "eager": tuple(samples.baseline),
            "candidate": tuple(samples.candidate),
            "foreign load": tuple(round(share, 3) for share in samples.foreign),
            "eager one by one": tuple(baseline for baseline, _ in samples.paced),
            "candidate one by one": tuple(candidate for _, candidate in samples.paced),
            "around a call": (samples.around, samples.around_paced),
        }
        return verdict, tuple(labels), raw

    def _end_workers(self) -> None:
        """All at once, and only then wait for each."""
        for worker in self._workers:
            worker.close(patience=0.0)
        for worker in self._workers:
            worker.close()

    def _hoarder(self, contestant: Contestant, error: Exception) -> RuntimeFailure:
        """The verdict on a program that left no memory to judge it in. Raises EvaluationError where it did not."""
        before = contestant.reach.free()
        contestant.close()
        after = contestant.reach.free()
        line = str(error).partition(". ")[0]
        if before is not None and after is not None:
            held = after - before
            # inputs and outputs of a few calls are what any program holds
            if held - LEAN_CALLS * self.bench.economy.call_bytes > HOARD * after:
                reason = f"it holds {gigabytes(held)} of the device's memory, and left too little to go on: {line}"
                return RuntimeFailure(fault="raised", reason=reason)
        if isinstance(error, EvaluationError):
            raise error
        raise EvaluationError(f"{self.bench.economy.wanted()}: {line}") from None

    def _must_have_had_memory(self, contestant: Contestant, fault: Fault) -> None:
        """Raises EvaluationError for a program that failed for want of memory which is not there without it either."""
        if OUT_OF_MEMORY not in str(fault):
            return
        self._end_workers()
        free = contestant.reach.free()
        if free is not None and free < LEAN_CALLS * self.bench.economy.call_bytes:
            raise EvaluationError(f"{self.bench.economy.wanted(free)}: {fault}") from None

    def _race(self, contestant: Contestant, eager: Contestant | None, check: CorrectnessCheck) -> PairedSamples:
        """`eager`: its worker, where that makes itself ready since long."""
        try:
            return self._timed(contestant, eager, check)
        except (BaselineFailedError, ProblemError):
            if check.source.odd_rows is None:
                raise
        # such rows are random, and the reference may fail for some (a matrix that is not positive definite)
        check.source.odd_rows = None
        return self._timed(contestant, None, check)

    def _timed(self, contestant: Contestant, eager: Contestant | None, check: CorrectnessCheck) -> PairedSamples:
        if self.bench.economy.cut is not None:  # the outputs that were verified make room for those of the baseline
            contestant.prepare([])
        eager = self.bench.trusted(self.instance, contestant=eager)
        self._workers.append(eager)
        # with the same weights its outputs tell whether the candidate's can be right
        eager.set_state(check.reference.state())
        # and with as long a life as the candidate's its memory has settled as much: else it is slower by 3 to 4 %
        inputs = self.instance.inputs(subseed(self.secret, "settle"))
        for _ in range(check.cases if eager.reach.settling_calls is None else eager.reach.settling_calls):
            eager.call(inputs, poison=check.reference.output_bytes)
        self._note("before timing", self.bench.adapter.conditions())
        samples = Race(
            eager,
            contestant,
            draw=check.source.timed,
            output_bytes=self.bench.output_bytes,
            check=BlockCheck(check, eager, contestant),
            limits=self.bench.adapter.limits,
            seconds=self.bench.court.timing_seconds,
            longest=self.bench.court.timing_cap,
            is_decided=self._is_decided,
            say=lambda progress: self.bench.say(f"{WORDS['time']}: {progress}"),
            traced_share=TRACED_SHARE if self.bench.court.track == "custom" and contestant.traceable else 0.0,
        ).run()
        held = sorted({limit.reason for limit in samples.limits})
        self._note("during timing", {"held back by": " and ".join(held)} if held else {})
        self._note("after timing", self.bench.adapter.conditions())
        return samples

    def _is_decided(self, samples: PairedSamples) -> bool:
        """Whether more pairs would change none of the findings, as far as the baselines are known."""
        luck = self._luck(samples)
        if not samples.is_decided(luck):
            return False
        known = self.bench.compiled.known(self.instance) if self.bench.court.compile_baseline else None
        if known is None or known.unavailable or samples.is_tight(COMPILED_HALF_WIDTH):
            return True
        return decides(_over_compile(samples, known), luck * math.sqrt(2), samples.allowance)

    def _luck(self, samples: PairedSamples) -> float:
        return self.bench.adapter.process_luck(samples.candidate_seconds().median)

    def _note(self, moment: str, conditions: dict[str, str]) -> None:
        if conditions:
            self.conditions[moment] = conditions

    def _whose_work(self, contestant: Contestant, samples: PairedSamples, check: CorrectnessCheck) -> tuple[str, ...]:
        """A label. Raises Fault on the track `custom` when it is a library's."""
        track = self.bench.court.track
        owner = self.bench.adapter.kernel_owners(self.candidate.source)
        if owner is not None:
            return self._whose_kernels(contestant, samples, check, owner)
        if not contestant.traceable:
            return ("untraced",)
        calls = math.ceil(TRACED_BLOCK_SECONDS / float(np.median(samples.candidate)))
        self.trace = census(self._looks(contestant, calls, track))
        share = self.trace.authored_share or 0.0
        while_timed = census(samples.whereabouts)
        if while_timed.telling >= LEAST_LOOKS:
            share = min(share, while_timed.authored_share or 0.0)
        return self._labelled(share)

    def _whose_kernels(
        self,
        contestant: Contestant,
        samples: PairedSamples,
        check: CorrectnessCheck,
        owner: Callable[[str], KernelOwner],
    ) -> tuple[str, ...]:
        """As above, on a device. After the timed blocks, not among them: a profiler stays attached to its process."""
        seen = self._watched(contestant, check)
        doubt = seen.doubt(samples.candidate)
        if doubt is None:
            self.trace = seen.census(owner)
            return self._labelled(self.trace.authored_share or 0.0, seen.foremost(owner))
        if self.bench.court.track == "custom" and (seen.kernels or self._sees_kernels()):
            reason = f"the track is custom, and whose code ran cannot be determined: {doubt}"
            raise Fault(Rejected(rule="untraced", reason=reason))
        return ("untraced",)

    def _watched(self, contestant: Contestant, check: CorrectnessCheck) -> Seen:
        """The kernels of calls that gave a right answer."""
        calls = sets_in_memory(
            self.instance.inputs(secrets.randbits(62)), self.bench.output_bytes, contestant.reach.input_bytes
        )
        for _ in range(WATCHED_TRIES):
            sets = [self.instance.inputs(secrets.randbits(62)) for _ in range(min(WATCHED_CALLS, calls))]
            contestant.prepare(sets)
            seen = Seen(*contestant.watch_block(), len(sets))
            index = secrets.randbelow(len(sets))
            check.verify(sets[index], contestant.block_output(index), "a watched call")
            if seen.kernels:
                break
        return seen

    def _sees_kernels(self) -> bool:
        """Whether kernels can be seen here at all: those of the reference, in a worker that nothing foreign runs in."""
        with closing(self.bench.trusted(self.instance)) as eager:
            eager.prepare([self.instance.inputs(secrets.randbits(62))])
            return bool(eager.watch_block()[0])

    def _labelled(self, share: float, instead: str = "") -> tuple[str, ...]:
        """By the share of its own code; `instead` names what ran most besides. Raises Fault on the track `custom`."""
        if share >= CUSTOM_SHARE:
            return ()
        if self.bench.court.track == "custom":
            others = f" (of others, {instead} ran longest)" if instead else ""
            reason = f"the track is custom, and its own code ran {share:.0%} of the time{others}"
            raise Fault(Rejected(rule="library_does_the_work", reason=reason))
        return ("library",)

    def _looks(self, contestant: Contestant, calls: int, track: str) -> list[str]:
        """Enough moments to tell, however long a busy machine takes for them, and more while that is quick."""
        found: list[str] = []
        start = time.monotonic()
        while (spent := time.monotonic() - start) < LOOK_PATIENCE:
            enough = spent >= LOOK_SECONDS[track] and census(found).telling >= TELLING_LOOKS[track]
            if enough or len(found) >= LOOKS[track]:
                break
            inputs = self.instance.inputs(secrets.randbits(62))
            most = min(TRACED_CALLS, TRACED_BYTES // max(1, self.bench.output_bytes))
            fitting = sets_in_memory(inputs, self.bench.output_bytes, contestant.reach.input_bytes)
            contestant.prepare([inputs], times=min(calls, max(most, min(MAX_CALLS_PER_BLOCK, fitting))))
            found += contestant.trace_block(LOOKS[track])
        return found

    def _obeys_physics(self, samples: PairedSamples, check: CorrectnessCheck) -> None:
        """Raises Fault for a program that is faster than its data can be moved."""
        seconds, moved = samples.candidate_seconds().high, self.bench.workload.bytes_moved
        if moved <= 2 * self.bench.adapter.cache_bytes:
            return
        with self.stages("physics"):  # the first time on a device its peaks are measured
            known = self.bench.peaks().most_bytes_per_second
        if seconds >= PHYSICS * moved / known:
            return
        with self.stages("physics"):
            needed = bytes_that_matter(check.reference, self.instance.inputs(subseed(self.secret, "physics")))
            # the peak may have been measured in a bad moment
            peak = max(known, self.bench.peaks(fresh=True).most_bytes_per_second)
        if seconds < PHYSICS * needed / peak:
            reason = f"{seconds:.3g} s a call is less than moving its {needed:,} bytes takes at {peak / 1e9:.0f} GB/s"
            raise Fault(Rejected(rule="physics", reason=reason))

    def _comparisons(self, samples: PairedSamples, labels: list[str]) -> tuple[Comparison, ...]:
        doubt = self.bench.caveat or voids_speed([*self.bench.findings, *labels]) or samples.doubt
        luck = self._luck(samples)
        eager = Comparison(
            baseline="eager",
            identity=self.bench.identity("eager"),
            seconds=samples.baseline_seconds(),
            speedup=samples.speedup(luck),
            doubt=doubt,
        )
        if not self.bench.court.compile_baseline:
            return (eager,)
        known = self.bench.compiled.baseline(self.instance)
        if known.unavailable:
            labels.append("no_compile_baseline")
            self.unavailable["compile"] = known.unavailable
            return (eager,)
        compiled = Comparison(
            baseline="compile",
            identity=known.identity,
            seconds=known.seconds,
            speedup=_over_compile(samples, known, luck * math.sqrt(2), samples.allowance),
            doubt=doubt or known.doubt,
        )
        return eager, compiled


def _over_compile(
    samples: PairedSamples, known: CompileBaseline, luck: float = 0.0, allowance: float = 0.0
) -> Interval:
    chained = chained_speedup(samples.log_ratios, np.asarray(known.log_ratios), np.random.default_rng(0))
    return widened(chained, samples.looks, luck, allowance)
