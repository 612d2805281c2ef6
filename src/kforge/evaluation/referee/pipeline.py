"""Takes one candidate through all stages of an evaluation: build, verify, time, trace, compare. (torch)"""

from __future__ import annotations

import math
import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kforge.errors import EvaluationError, ProblemError
from kforge.evaluation.constants import (
    COMPILED_HALF_WIDTH,
    CUSTOM_SHARE,
    HOARD,
    LEAN_CALLS,
    LEAST_TRACE_PATIENCE,
    LEAST_TRACE_SAMPLES,
    MAX_CALLS_PER_BLOCK,
    OWN_SHARE_ELSEWHERE,
    PHYSICS,
    TELLING_SAMPLES,
    TRACE_PATIENCE,
    TRACE_SAMPLES,
    TRACE_SECONDS,
    TRACED_BLOCK_SECONDS,
    TRACED_BYTES,
    TRACED_CALLS,
    TRACED_SHARE,
    WATCHED_CALLS,
    WATCHED_TRIES,
)
from kforge.evaluation.correctness.check import Correctness, CorrectnessCheck
from kforge.evaluation.large_problems.memory_budget import gigabytes
from kforge.evaluation.referee.device_peaks import measured_peaks
from kforge.evaluation.referee.problem_lint import voids_speed
from kforge.evaluation.reference.reference import subseed
from kforge.evaluation.stages import WORDS
from kforge.evaluation.static_check import ENTRY
from kforge.evaluation.timing.bandwidth_bound import bytes_that_matter
from kforge.evaluation.timing.block_check import BlockCheck
from kforge.evaluation.timing.fresh_inputs import sets_in_memory
from kforge.evaluation.timing.kernel_ownership import Seen
from kforge.evaluation.timing.pairs import PairedSamples, decides
from kforge.evaluation.timing.race import Duration, Race
from kforge.evaluation.timing.statistics import chained_speedup, widened
from kforge.evaluation.timing.timed_outputs import TimedOutputs
from kforge.evaluation.worker_client.client import OUT_OF_MEMORY, Fault, WorkerClient
from kforge.evaluation.worker_client.code_ownership import WRITABLE_CODE, census, working
from kforge.evaluation.worker_client.orders import BaselineFailedError
from kforge.records import Comparison, Correct, Rejected, RuntimeFailure, Timing, Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.baselines import CompileBaseline
    from kforge.evaluation.referee.compile_baseline import CompileBaselines
    from kforge.evaluation.referee.workers import WorkerFactory
    from kforge.evaluation.stages import Stages
    from kforge.platforms import KernelDevice, KernelOwner
    from kforge.problems.instance import Instance
    from kforge.records import Candidate, Interval


class Pipeline:
    """Evaluates one candidate on one problem, and keeps what the receipt needs. The first failed stage ends it."""

    def __init__(
        self,
        workers: WorkerFactory,
        compile_baselines: CompileBaselines,
        instance: Instance,
        candidate: Candidate,
        *,
        findings: tuple[str, ...],
        stages: Stages,
        is_original: bool = False,
    ) -> None:
        """`findings` are the labels of the problem. `is_original`: see `CandidateRequest`."""
        self.workers = workers
        self._compile_baselines = compile_baselines
        self._findings = findings
        self._is_original = is_original
        self.instance = instance
        self.candidate = candidate
        self.stages = stages
        self.secret = secrets.token_hex(16)
        self.trace: Trace | None = None
        self.conditions: dict[str, dict[str, str]] = {}
        """What the device reports about its clocks, power and temperature, by moment."""
        self.unavailable: dict[str, str] = {}
        """Baselines that could not be measured, with the reason."""
        self._workers: list[WorkerClient] = []

    def run(self) -> tuple[Any, tuple[str, ...], dict[str, tuple[float, ...]]]:
        """Return the verdict, its labels and the raw samples. A failure of the program is a verdict, not an
        exception. Raises EvaluationError if no worker starts."""
        try:
            with self.stages("start"):
                client = self.workers.worker(self.candidate.digest)
        except Fault as fault:  # before any foreign code ran: kforge's fault, not the candidate's
            last = getattr(fault.verdict, "log", "").strip().rpartition("\n")[2]
            raise EvaluationError(f"a worker did not start: {fault.verdict.reason}{': ' * bool(last)}{last}") from None
        self._workers.append(client)
        try:
            # only now: two workers that initialize at once delay each other in the driver
            eager = self.workers.early_reference_worker(self.instance) if self.workers.emulated is None else None
            self._workers += [eager] if eager is not None else []
            with self.stages("build"):
                client.load(self.candidate.source, "candidate.py", ENTRY)
            with self.stages("verify"):
                check = CorrectnessCheck(
                    self.instance, client, secret=self.secret, precision=self.workers.setup.precision,
                    cut=self.workers.memory_plan.cut, say=self.workers.say,
                )  # fmt: skip
                correctness = check.run()
                client.orders.must_be_quiet("while it had no order")
            if self.workers.emulated is not None:
                return self._untimed(client, check, correctness, self.workers.emulated)
            with self.stages("time"):
                samples = self._race(client, eager, check)
            self._obeys_physics(samples, check)
            with self.stages("trace"):
                traced = self._whose_work(client, samples, check)
        except Fault as fault:
            self._must_have_had_memory(client, fault)
            return fault.verdict, (), {}
        except (torch.OutOfMemoryError, EvaluationError) as error:
            return self._hoarder(client, error), (), {}
        finally:
            self._end_workers()
        labels = [*correctness.labels, *samples.labels, *traced, *_unseen(client)]
        with self.stages("compare"):
            comparisons = self._comparisons(samples, labels)
        timing = Timing(seconds=samples.candidate_seconds(), comparisons=comparisons, pairs=len(samples.baseline))
        verdict = Correct(
            max_error=check.outputs.worst.error,
            tolerance=check.outputs.worst.tolerance,
            cases=correctness.cases,
            timing=timing,
        )
        raw = {
            "eager": tuple(samples.baseline),
            "candidate": tuple(samples.candidate),
            "stopping charge": tuple(samples.charges),
            "foreign load": tuple(round(share, 3) for share in samples.foreign),
            "eager one by one": tuple(baseline for baseline, _ in samples.paced),
            "candidate one by one": tuple(candidate for _, candidate in samples.paced),
            "around a call": (samples.around, samples.around_paced),
        }
        return verdict, tuple(labels), raw

    def _untimed(
        self, client: WorkerClient, check: CorrectnessCheck, correctness: Correctness, emulated: str
    ) -> tuple[Correct, tuple[str, ...], dict[str, tuple[float, ...]]]:
        """Return the verdict on a program that ran in an emulator, without timing."""
        worst = check.outputs.worst
        verdict = Correct(max_error=worst.error, tolerance=worst.tolerance, cases=correctness.cases, untimed=emulated)
        return verdict, (*correctness.labels, "untraced", *_unseen(client)), {}

    def _end_workers(self) -> None:
        """Kill all workers, and then wait for each of them."""
        for worker in self._workers:
            worker.close(patience=0.0)
        for worker in self._workers:
            worker.close()

    def _hoarder(self, client: WorkerClient, error: Exception) -> RuntimeFailure:
        """Return the verdict on a program that left too little device memory to go on.

        Raises EvaluationError if the program did not hold that memory.
        """
        before = client.access.free()
        client.close()
        after = client.access.free()
        line = str(error).partition(". ")[0]
        if before is not None and after is not None:
            held = after - before
            # every program holds the inputs and outputs of a few calls
            if held - LEAN_CALLS * self.workers.memory_plan.call_bytes > HOARD * after:
                reason = f"it holds {gigabytes(held)} of the device's memory, and left too little to go on: {line}"
                return RuntimeFailure(fault="raised", reason=reason)
        if isinstance(error, EvaluationError):
            raise error
        raise EvaluationError(f"{self.workers.memory_plan.shortage_message()}: {line}") from None

    def _must_have_had_memory(self, client: WorkerClient, fault: Fault) -> None:
        """Raise EvaluationError if the program ran out of memory, and there is too little memory without it, too."""
        if OUT_OF_MEMORY not in str(fault):
            return
        self._end_workers()
        free = client.access.free()
        if free is not None and free < LEAN_CALLS * self.workers.memory_plan.call_bytes:
            raise EvaluationError(f"{self.workers.memory_plan.shortage_message(free)}: {fault}") from None

    def _race(self, client: WorkerClient, eager: WorkerClient | None, check: CorrectnessCheck) -> PairedSamples:
        """Time the program. `eager` is the baseline's worker if it was started in advance.

        If the reference fails on inputs with odd rows, the program is timed again without them.
        """
        try:
            return self._timed(client, eager, check)
        except (BaselineFailedError, ProblemError):
            if check.source.odd_rows is None:
                raise
        except Fault as fault:  # the candidate's side may have run first
            if not (fault.has_raised and TimedOutputs(check).reference_fails()):
                raise
        # odd rows are random, and the reference may fail for some (a matrix that is not positive definite)
        check.source.odd_rows = None
        return self._timed(client, None, check)

    def _timed(self, client: WorkerClient, eager: WorkerClient | None, check: CorrectnessCheck) -> PairedSamples:
        """Time the program against the reference in eager mode, and note the device's conditions."""
        if (
            self.workers.memory_plan.cut is not None
        ):  # the verified outputs are freed to make room for those of the baseline
            client.block.prepare([])
        eager = self.workers.reference_worker(self.instance, client=eager)
        self._workers.append(eager)
        # with the same weights, the baseline's outputs show whether the candidate's can be right
        eager.set_state(check.reference.state())
        # as many calls as the candidate has made, so that its allocator has settled as much: otherwise it is 3 to 4 %
        # slower
        inputs = self.instance.inputs(subseed(self.secret, "settle"))
        for _ in range(check.cases if eager.access.settling_calls is None else eager.access.settling_calls):
            eager.call(inputs, poison=check.reference.output_bytes)
        self._note("before timing", self.workers.adapter.conditions())
        samples = Race(
            eager,
            client,
            draw=check.source.timed,
            output_bytes=self.workers.output_bytes,
            check=BlockCheck(check, eager, client),
            limits=self.workers.adapter.limits,
            duration=Duration(
                seconds=self.workers.setup.timing_seconds,
                longest=self.workers.setup.timing_cap,
                is_decided=self._is_decided,
                say=lambda progress: self.workers.say(f"{WORDS['time']}: {progress}"),
            ),
            traced_share=TRACED_SHARE if self.workers.setup.track == "custom" and client.traceable else 0.0,
        ).run()
        held = sorted({limit.reason for limit in samples.limits})
        self._note("during timing", {"held back by": " and ".join(held)} if held else {})
        self._note("after timing", self.workers.adapter.conditions())
        return samples

    def _is_decided(self, samples: PairedSamples) -> bool:
        """Return whether more timed pairs would change none of the findings about the known baselines, or none of
        interest."""
        if self._is_original:
            return True
        variation = self._variation(samples)
        if not samples.is_decided(variation):
            return False
        known = self._compile_baselines.known(self.instance) if self.workers.setup.compile_baseline else None
        if known is None or known.unavailable or samples.is_tight(COMPILED_HALF_WIDTH):
            return True
        return decides(_over_compile(samples, known), variation * math.sqrt(2), samples.allowance)

    def _variation(self, samples: PairedSamples) -> float:
        """Return the bound on process-to-process variation, as a logarithm."""
        return self.workers.adapter.process_variation(samples.candidate_seconds().median)

    def _note(self, moment: str, conditions: dict[str, str]) -> None:
        if conditions:
            self.conditions[moment] = conditions

    def _whose_work(self, client: WorkerClient, samples: PairedSamples, check: CorrectnessCheck) -> tuple[str, ...]:
        """Return a label if a library's code did the work, or if that is unknown. On the track `custom`, raises Fault
        instead."""
        owner = self.workers.adapter.kernel_owners(self.candidate.source)
        if owner is not None:
            return self._whose_kernels(client, samples, check, owner)
        elsewhere = self.workers.adapter.kernel_device()
        if elsewhere is not None and not elsewhere.in_worker:
            return self._untraced("kernels run on a device that cannot be watched")
        return self._whose_moments(client, samples, elsewhere)

    def _untraced(self, why: str) -> tuple[str, ...]:
        """Return the label for a program whose code could not be traced. Raises Fault on the track `custom`."""
        if self.workers.setup.track == "custom":
            reason = f"the track is custom, and whose code ran cannot be determined: {why}"
            raise Fault(Rejected(rule="untraced", reason=reason))
        return ("untraced",)

    def _whose_moments(
        self, client: WorkerClient, samples: PairedSamples, elsewhere: KernelDevice | None
    ) -> tuple[str, ...]:
        """Like `_whose_work`, for programs that compute in the worker process: by stopping it at random moments."""
        if not client.traceable:
            return ("untraced",)
        # a driver may run kernels in memory that is writable, too
        own = () if elsewhere is None else (*elsewhere.driver, WRITABLE_CODE)
        calls = math.ceil(TRACED_BLOCK_SECONDS / float(np.median(samples.candidate)))
        files, timed = self._looks(client, calls, elsewhere), samples.whereabouts
        if elsewhere is not None:
            files, timed = working(files), working(timed)
        self.trace, while_timed = census(files, own), census(timed, own)
        if elsewhere is not None:
            # launching a small kernel takes longer than running it, so all code outside of libraries counts as its own
            traces = [trace for trace in (self.trace, while_timed) if trace.total >= LEAST_TRACE_SAMPLES]
            if not traces:
                return self._untraced("it was stopped in no code that shows it")
            share = min(1 - trace.library / trace.total for trace in traces)
            return self._labelled(share, least=OWN_SHARE_ELSEWHERE)
        share = self.trace.authored_share or 0.0
        if while_timed.telling >= LEAST_TRACE_SAMPLES:
            share = min(share, while_timed.authored_share or 0.0)
        return self._labelled(share)

    def _whose_kernels(
        self,
        client: WorkerClient,
        samples: PairedSamples,
        check: CorrectnessCheck,
        owner: Callable[[str], KernelOwner],
    ) -> tuple[str, ...]:
        """Like `_whose_work`, for programs that compute on a device: by the kernels that torch's profiler records.

        It runs after the timed blocks, because a profiler stays attached to its process.
        """
        seen = self._watched(client, check)
        doubt = seen.doubt(samples.candidate)
        if doubt is None:
            self.trace = seen.census(owner)
            return self._labelled(self.trace.authored_share or 0.0, seen.foremost(owner))
        if (elsewhere := self.workers.adapter.kernel_device()) is not None:
            # the rest of a call is launches, copies or work of the host; if no kernel ran, all of it is host code
            return self._untraced(doubt) if seen.kernels else self._whose_moments(client, samples, elsewhere)
        if seen.kernels or self.workers.setup.track != "custom" or self._sees_kernels():
            return self._untraced(doubt)
        return ("untraced",)  # not even the reference's kernels can be recorded here

    def _watched(self, client: WorkerClient, check: CorrectnessCheck) -> Seen:
        """Return the recorded kernels of some calls, whose outputs are checked. Raises Fault if a call or its
        output is wrong."""
        calls = sets_in_memory(
            self.instance.inputs(secrets.randbits(62)), self.workers.output_bytes, client.access.input_bytes
        )
        for _ in range(WATCHED_TRIES):
            sets = [self.instance.inputs(secrets.randbits(62)) for _ in range(min(WATCHED_CALLS, calls))]
            client.block.prepare(sets)
            seen = Seen(*client.block.watch(), len(sets))
            index = secrets.randbelow(len(sets))
            TimedOutputs(check).must_be_right(sets[index], client.block.output(index), "a watched call")
            if seen.kernels:
                break
        return seen

    def _sees_kernels(self) -> bool:
        """Return whether kernels can be recorded on this device, by calling the reference in a trusted worker."""
        with closing(self.workers.reference_worker(self.instance)) as eager:
            eager.block.prepare([self.instance.inputs(secrets.randbits(62))])
            return bool(eager.block.watch()[0])

    def _labelled(self, share: float, instead: str = "", least: float = CUSTOM_SHARE) -> tuple[str, ...]:
        """Return the label `library` if the program's own code ran for less than the share `least`; otherwise none.

        Raises Fault instead on the track `custom`. `instead` names the foreign kernel that ran longest.
        """
        if share >= least:
            return ()
        if self.workers.setup.track == "custom":
            others = f" (of others, {instead} ran longest)" if instead else ""
            reason = f"the track is custom, and its own code ran {share:.0%} of the time{others}"
            raise Fault(Rejected(rule="library_does_the_work", reason=reason))
        return ("library",)

    def _looks(self, client: WorkerClient, calls: int, elsewhere: KernelDevice | None) -> list[str]:
        """Stop the program at random moments, until that suffices for a result or takes too long. Returns the files
        whose code ran."""
        found: list[str] = []
        track = self.workers.setup.track
        # a worker that waits for another device runs no code, and waiting longer shows no more of it
        patience = TRACE_PATIENCE if elsewhere is None or elsewhere.in_worker else TRACE_SECONDS[track]
        if track == "library":  # the result is only a label, so sampling takes no longer than timing may take
            patience = min(patience, max(self.workers.setup.timing_cap, LEAST_TRACE_PATIENCE))
        start = time.monotonic()
        while (spent := time.monotonic() - start) < patience:
            counted = census(found).telling if elsewhere is None else len(working(found))
            enough = spent >= TRACE_SECONDS[track] and counted >= TELLING_SAMPLES[track]
            if enough or len(found) >= TRACE_SAMPLES[track]:
                break
            inputs = self.instance.inputs(secrets.randbits(62))
            most = min(TRACED_CALLS, TRACED_BYTES // max(1, self.workers.output_bytes))
            fitting = sets_in_memory(inputs, self.workers.output_bytes, client.access.input_bytes)
            client.block.prepare([inputs], times=min(calls, max(most, min(MAX_CALLS_PER_BLOCK, fitting))))
            found += client.block.trace(TRACE_SAMPLES[track])
        return found

    def _obeys_physics(self, samples: PairedSamples, check: CorrectnessCheck) -> None:
        """Raise Fault if the program is faster than the device can move its data."""
        seconds, moved = samples.candidate_seconds().high, self.workers.workload.bytes_moved
        if moved <= 2 * self.workers.adapter.cache_bytes:
            return
        with self.stages("physics"):  # the device's peaks are measured the first time
            known = measured_peaks(self.workers, patience=0).most_bytes_per_second
        if seconds >= PHYSICS * moved / known:
            return
        with self.stages("physics"):
            needed = bytes_that_matter(check.reference, self.instance.inputs(subseed(self.secret, "physics")))
            # the peak may have been measured while the device was disturbed
            peak = max(known, measured_peaks(self.workers, fresh=True, patience=0).most_bytes_per_second)
        if seconds < PHYSICS * needed / peak:
            reason = f"{seconds:.3g} s a call is less than moving its {needed:,} bytes takes at {peak / 1e9:.0f} GB/s"
            raise Fault(Rejected(rule="physics", reason=reason))

    def _comparisons(self, samples: PairedSamples, labels: list[str]) -> tuple[Comparison, ...]:
        """Return the speedup over each baseline. A missing compiled baseline adds a label to `labels`."""
        doubt = voids_speed([*self._findings, *labels]) or samples.doubt
        variation = self._variation(samples)
        eager = Comparison(
            baseline="eager",
            identity=self.workers.identity("eager"),
            seconds=samples.baseline_seconds(),
            speedup=samples.speedup(variation),
            doubt=doubt,
        )
        if not self.workers.setup.compile_baseline:
            return (eager,)
        if self._is_original:
            self.unavailable["compile"] = "it is not measured for the original module"
            return (eager,)
        known = self._compile_baselines.baseline(self.instance)
        if known.unavailable:
            labels.append("no_compile_baseline")
            self.unavailable["compile"] = known.unavailable
            return (eager,)
        compiled = Comparison(
            baseline="compile",
            identity=known.identity,
            seconds=known.seconds,
            speedup=_over_compile(samples, known, variation * math.sqrt(2), samples.allowance),
            doubt=doubt or known.doubt,
        )
        return eager, compiled


def _unseen(client: WorkerClient) -> tuple[str, ...]:
    return () if client.access.sees else ("outputs_not_seen",)


def _over_compile(
    samples: PairedSamples, known: CompileBaseline, variation: float = 0.0, allowance: float = 0.0
) -> Interval:
    """Return the speedup over `torch.compile`."""
    chained = chained_speedup(samples.log_ratios, np.asarray(known.log_ratios), np.random.default_rng(0))
    return widened(chained, samples.looks, variation, allowance)
