"""The evaluator: answers the orchestrator's requests, one problem at a time. (torch)"""

from __future__ import annotations

import os
import platform as machine
import secrets
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import numpy as np
import torch

from kforge.errors import EvaluationError, InputError, ProblemError
from kforge.evaluation.constants import (
    BLOCK_SECONDS,
    COUNTED_CALLS,
    LEAST_BUILD_SPACE,
    MAX_CALLS_PER_BLOCK,
    STATISTICS,
)
from kforge.evaluation.referee.compile_baseline import CompileBaselines
from kforge.evaluation.referee.device_peaks import measured_peaks
from kforge.evaluation.referee.head_to_head import HeadToHeadRun
from kforge.evaluation.referee.line_sampling import sampled
from kforge.evaluation.referee.pipeline import Pipeline
from kforge.evaluation.referee.problem_lint import lint, voids_speed
from kforge.evaluation.referee.profiler_run import Ladder
from kforge.evaluation.referee.sanitizer_run import SanitizerRun
from kforge.evaluation.referee.workers import WorkerFactory
from kforge.evaluation.reference.reference import Reference
from kforge.evaluation.reference.torch_integrity import TorchSnapshot
from kforge.evaluation.reference.watch import ReferenceWatch
from kforge.evaluation.sandbox import UNSAFE
from kforge.evaluation.stages import WORDS
from kforge.evaluation.stages import Stages as Stages
from kforge.evaluation.static_check import ENTRY
from kforge.evaluation.timing.block_clocks import TIMER
from kforge.evaluation.timing.fresh_inputs import sets_in_memory
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.problems.instance import Instance, instantiate
from kforge.profiling import digest, imported, rates, roofline
from kforge.records import (
    AuthoredCode,
    CompilationFailure,
    DeviceFact,
    DeviceFacts,
    Evaluation,
    HeadToHead,
    HotSpot,
    Peaks,
    Problem,
    Profile,
    Receipt,
    RuntimeFailure,
    Sanitization,
    Span,
    Verdict,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.processes.worker_start import Workers
    from kforge.evaluation.requests import BuildRequest, CandidateRequest, HeadToHeadRequest
    from kforge.evaluation.transport.options import RefereeSetup

PROFILED_CALLS = 5
"""Number of calls that torch's profiler records."""
BUILDS_KERNELS = "inline"
"""A word in the source of every program that compiles kernels with `kforge.inline`."""
EMULATED = "emulated"
"""Label of a result from an emulator or interpreter, which says nothing about speed."""


class Evaluator:
    """Answers the orchestrator's requests: describe, evaluate, build, profile, head_to_head, sanitize, peaks, facts."""

    def __init__(
        self,
        setup: RefereeSetup,
        fork_server: Workers,
        say: Callable[[str], None],
        give_up: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`say` receives progress messages. `give_up` ends this referee with a reason; another thread may call it."""
        self.reference_watch = ReferenceWatch(say, give_up)
        self.reference_watch.install()
        self.setup = setup
        self.workers = WorkerFactory(setup, fork_server, self.reference_watch.say)
        self.adapter = self.workers.adapter
        self._compile_baselines = CompileBaselines(self.workers)
        self._profilers = Ladder(self.workers)
        self._instance: Instance | None = None
        self._findings: tuple[str, ...] = ()
        """Labels of the open problem, which every verdict on it gets."""
        self._before: TorchSnapshot | None = None
        """The state of torch before any problem's code ran in this process."""
        torch.set_num_threads(setup.threads)

    # --- requests --------------------------------------------------------------------------------------------

    def describe(self, problem: Problem) -> Workload:
        """Return the description of a problem. Raises ProblemError if it cannot be run, or if no program can be judged
        by it."""
        return self._open(problem)[1]

    def evaluate(self, case: CandidateRequest) -> Evaluation:
        """Return the verdict on a candidate, with its receipt."""
        stages = Stages(self.workers.say)
        self.reference_watch.begin()
        with stages("problem"):
            instance, _ = self._open(case.problem)
        pipeline = Pipeline(
            self.workers,
            self._compile_baselines,
            instance,
            case.candidate,
            findings=self._findings,
            stages=stages,
            is_original=case.is_original,
        )
        verdict, labels, samples = pipeline.run()
        self._not_for_want_of_space(verdict)
        labels = (*self._findings, *labels, *(() if self.workers.emulated is None else (EMULATED,)))
        receipt = Receipt(
            problem=case.problem.digest,
            candidate=case.candidate.digest,
            platform=self.workers.platform.manifest.name,
            precision=self.setup.precision,
            track=self.setup.track,
            seed=pipeline.secret,
            device=self.adapter.describe_device(),
            versions={"torch": torch.__version__, "python": machine.python_version(), **self.adapter.versions()},
            sandbox=self.workers.sandbox,
            timer=TIMER,
            samples=samples,
            statistics=STATISTICS,
            stages=stages.seconds,
            conditions=pipeline.conditions,
            unavailable=pipeline.unavailable,
            trace=pipeline.trace,
        )
        unsafe = (UNSAFE,) if self.workers.unsafe else ()
        return Evaluation(verdict=verdict, receipt=receipt, labels=(*labels, *unsafe))

    def build(self, ahead: BuildRequest) -> Workload:
        """Compile a candidate and the baseline in advance, so that an evaluation finds them in the cache. Returns the
        workload.

        Failures are ignored, because the evaluation reports them.
        """
        instance, workload = self._open(ahead.problem)
        if ahead.candidate is not None:
            self.workers.say(WORDS["build"])
            with suppress(Fault), closing(self.workers.worker(ahead.candidate.digest)) as client:
                client.load(ahead.candidate.source, "candidate.py", ENTRY)
                client.construct(instance, 0)
                client.call(instance.inputs(0), compiling=True)
        if self.setup.compile_baseline and self.workers.emulated is None:
            self._compile_baselines.build(instance)
        return workload

    def profile(self, case: CandidateRequest) -> Profile:
        """Return a profile of a program. Raises EvaluationError if the program cannot be run."""
        instance, workload = self._open(case.problem)
        seed = secrets.randbits(62)
        by_line = bool(self.adapter.line_flags) and BUILDS_KERNELS in case.candidate.source
        authored: AuthoredCode | None = None
        client = self.workers.worker(case.candidate.digest, lines=by_line)
        try:
            client.load(case.candidate.source, "candidate.py", ENTRY)
            client.construct(instance, seed)
            if case.problem.state_digest is not None:
                client.set_state(Reference(instance, seed).state())
            self.workers.say(WORDS["profile"])
            seconds = case.seconds or _seconds_a_call(client, instance, self.workers.output_bytes)
            rows, timeline = client.profile(instance.inputs(seed), PROFILED_CALLS)
            if by_line:
                authored = sampled(client, instance, seconds, self.workers.output_bytes)
        except Fault as fault:
            state, reason = fault.verdict.state.replace("_", " "), fault.verdict.reason
            raise EvaluationError(f"the program cannot be profiled: {state}: {reason}") from None
        finally:
            client.close()
        total = sum(row[2] for row in rows) or 1.0
        spots = tuple(HotSpot(name=n, calls=c, seconds=s, share=s / total) for n, c, s in rows)
        export, missing = self._profilers.climb(instance, case.candidate, seed) if case.counters else (None, "")
        notes = [] if export is None else list(imported.notes(export, COUNTED_CALLS))
        spans = tuple(Span(name=n, start=begun * 1e-9, seconds=s) for n, begun, s in timeline)
        page = digest(
            tool=" and ".join(("torch.profiler", *(export.tools if export is not None else ()))),
            seconds=seconds,
            hot_spots=spots,
            roofline=roofline(workload, measured_peaks(self.workers), self.setup.precision),
            workload=workload,
            kernels=export.kernels if export is not None else (),
            notes=[*notes, *([missing] if missing else [])],
            authored=authored,
        )
        return page.model_copy(update={"timeline": spans})

    def head_to_head(self, case: HeadToHeadRequest) -> HeadToHead:
        """Time two correct programs against each other."""
        self.reference_watch.begin()
        instance, _ = self._open(case.problem)
        if (reason := voids_speed(self._findings) or self.workers.emulated) is not None:
            return HeadToHead(finding="undecided", reason=reason)
        return HeadToHeadRun(self.workers, instance, case.challenger, case.rival).run()

    def sanitize(self, case: CandidateRequest) -> Sanitization:
        """Run a few correctness cases under the platform's sanitizers, and return what they found."""
        instance, _ = self._open(case.problem)
        self.workers.say(WORDS["sanitize"])
        return SanitizerRun(self.workers, instance, case.candidate).run()

    def peaks(self, *, fresh: bool = False) -> Peaks:
        """Return the device's peak rates, from the cache or, with `fresh`, measured again."""
        return measured_peaks(self.workers, fresh=fresh)

    def facts(self) -> DeviceFacts:
        """Return what the device reports about itself, and its measured rates. For an emulated device, only its name is
        returned, and the reason why its rates are unknown."""
        device, emulated = self.adapter.describe_device(), self.workers.emulated
        if emulated is not None:
            row = DeviceFact(name="Device", text=f"not on this machine, so its rates are not known: {emulated}")
            return DeviceFacts(device=device, facts=(row,))
        peaks = measured_peaks(self.workers)
        rows = (*self.adapter.facts(), *rates(peaks))
        facts = tuple(DeviceFact(name=name, text=text) for name, text in rows)
        return DeviceFacts(device=device, facts=facts, peaks=peaks)

    def is_fit(self) -> bool:
        """Return whether another problem may be judged in this process: no problem so far has changed torch."""
        return self._before is None or self._before.holds()

    def close(self) -> None:
        self._drop_problem()
        self.workers.close()

    def _not_for_want_of_space(self, verdict: Verdict) -> None:
        """Raise InputError if the disk is full, because then a failed build is not the program's fault.

        It is called after the worker has ended, so files that the program kept beyond its share are already removed.
        """
        if not isinstance(verdict, CompilationFailure | RuntimeFailure) or not self.workers.cache.exists():
            return
        space = os.statvfs(self.workers.cache)
        if space.f_bavail * space.f_frsize < LEAST_BUILD_SPACE or (space.f_files and not space.f_favail):
            raise InputError(
                f"No space left on the disk of {self.workers.cache}, where programs are built, so this was not judged "
                f"(it failed with: {verdict.reason}); free some space and try again"
            )

    def _open(self, problem: Problem) -> tuple[Instance, Workload]:
        """Open a problem unless it is already open: run its reference, plan the memory, and find its labels.

        Raises ProblemError if the problem cannot be used, for example because its reference is not deterministic.
        """
        if self._instance is None or self._instance.problem.digest != problem.digest:
            self._drop_problem()
            self.workers.say(WORDS["problem"])
            self.adapter.prepare()
            # tolerances come from torch's own error at the declared precision
            self.adapter.use_precision(self.setup.precision)
            self._before = self._before or TorchSnapshot()
            # on the device if its memory can be shared; otherwise tensors are made and judged on the host, and copied
            instance = instantiate(problem, self.workers.reference_device)
            start = time.monotonic()
            workload = instance.describe()
            described = time.monotonic() - start
            if "nondeterministic" in workload.labels:
                raise ProblemError(
                    f"{problem.name}: the reference gives different outputs for the same inputs, so nothing can be "
                    "judged by it; its random numbers must come from the generators of torch, numpy or `random`"
                )
            self.workers.memory_plan.plan(instance, workload, described)
            findings = lint(self.workers.memory_plan.linted(instance))
            unsteady = ("unsteady_reference",) if "unsteady" in workload.labels else ()
            self._findings = (*findings, *unsteady, *self.workers.memory_plan.labels)
            self._instance = instance
            self.workers.open(workload)
            if self.workers.memory_plan.is_short:
                self.workers.memory_plan.free_memory()
        return self._instance, self.workers.workload

    def _drop_problem(self) -> None:
        self._instance = None
        self.workers.open(None)


def _seconds_a_call(client: WorkerClient, instance: Instance, output_bytes: int) -> float:
    """Return the median seconds of a call over short blocks on fresh inputs. It is for profiles only.

    A single call on a device would mostly measure the wait for its end.
    """
    times: list[float] = []
    calls = 1
    for index in range(12):
        inputs = instance.inputs(index)
        client.block.prepare([inputs] * calls)
        times.append(client.block.run().claimed / calls)
        if index == 1:  # the first call also warms up
            wanted = int(BLOCK_SECONDS / max(times[1], 1e-9))
            # a quarter of the sets that timing uses, because copying inputs only for a profile takes time
            calls = max(1, min(wanted, MAX_CALLS_PER_BLOCK, sets_in_memory(inputs, output_bytes) // 4))
    return float(np.median(times[2:]))
