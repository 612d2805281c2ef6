"""The referee's bench: what candidates of one problem share, and a fresh worker for every one of them. (torch)"""

from __future__ import annotations

import os
import platform as machine
import secrets
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from kforge import platforms
from kforge.errors import EvaluationError, InputError, ProblemError
from kforge.evaluation.baselines import identity
from kforge.evaluation.compiled import Compiled
from kforge.evaluation.constants import (
    BLOCK_SECONDS,
    BUSY_SHARE,
    COUNTED_CALLS,
    LEAST_BUILD_SPACE,
    MAX_CALLS_PER_BLOCK,
    STATISTICS,
)
from kforge.evaluation.contestant import Contestant, Fault
from kforge.evaluation.counting import Ladder
from kforge.evaluation.economy import Economy, bytes_of_specs
from kforge.evaluation.lint import lint
from kforge.evaluation.load import Snapshot, foreign_share
from kforge.evaluation.measurements import Measurements
from kforge.evaluation.reach import DeviceReach, HostReach, Reach
from kforge.evaluation.reference import Reference
from kforge.evaluation.sandbox import UNSAFE
from kforge.evaluation.sanitizing import SanitizedTrial
from kforge.evaluation.scan import ENTRY
from kforge.evaluation.stages import WORDS
from kforge.evaluation.stages import Stages as Stages
from kforge.evaluation.timing import TIMER, sets_in_memory
from kforge.evaluation.trial import Trial
from kforge.evaluation.untouched import Standing
from kforge.evaluation.vigil import Vigil
from kforge.problems.instance import Instance, instantiate
from kforge.problems.tensors import HOST
from kforge.profiling import digest, imported, roofline
from kforge.records import (
    CompilationFailure,
    Evaluation,
    HotSpot,
    Peaks,
    Problem,
    Profile,
    Receipt,
    RuntimeFailure,
    Sanitization,
    Verdict,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.case import Ahead, Case
    from kforge.evaluation.court import Court
    from kforge.evaluation.nursery import Prepared, Workers

PROFILED_CALLS = 5
NOT_THE_DEVICE = "not_the_device"
"""Label of a result that was taken elsewhere than on the device that programs are for: it is about correctness only."""
READS_PROCESSES = Path("/proc/self/mem").exists()
"""Whether the outputs of a timed block can be read from a worker that is held still."""


class Bench:
    """The referee's bench: one problem at a time, and a fresh worker for every candidate and every baseline.

    A baseline that is kept warm grows slower with every evaluation (its memory scatters), by 5 % in five of them.
    """

    def __init__(
        self,
        court: Court,
        workers: Workers,
        say: Callable[[str], None],
        give_up: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`say` is told progress; `give_up` ends this referee, for a reason, from another thread."""
        self.court = court
        self.workers = workers
        self.vigil = Vigil(say, give_up)
        self.vigil.install()
        self.say = self.vigil.say
        self.platform = platforms.load_folder(Path(court.platform_folder))
        self.adapter = self.platform.adapter
        self.caveat = self.adapter.caveat()
        self.cache = Path(court.cache)
        self.measurements = Measurements(self.cache)
        self.compiled = Compiled(self)
        self.economy = Economy(self.adapter, court.memory)
        self._ladder = Ladder(self)
        self._instance: Instance | None = None
        self._workload: Workload | None = None
        self.findings: tuple[str, ...] = ()
        """Labels of the open problem, whatever program is judged."""
        self._before: Standing | None = None
        """Torch as it was when no problem's code had run here yet."""
        torch.set_num_threads(court.threads)

    # --- requests --------------------------------------------------------------------------------------------

    def describe(self, problem: Problem) -> Workload:
        """Raises ProblemError when the problem cannot be run, or nothing could be judged by it."""
        return self._open(problem)[1]

    def evaluate(self, case: Case) -> Evaluation:
        stages = Stages(self.say)
        self.vigil.begin()
        with stages("problem"):
            instance, _ = self._open(case.problem)
        trial = Trial(self, instance, case.candidate, stages)
        verdict, labels, samples = trial.run()
        self._not_for_want_of_space(verdict)
        labels = (*self.findings, *labels, *(() if self.caveat is None else (NOT_THE_DEVICE,)))
        receipt = Receipt(
            problem=case.problem.digest,
            candidate=case.candidate.digest,
            platform=self.platform.manifest.name,
            precision=self.court.precision,
            track=self.court.track,
            seed=trial.secret,
            device=self.adapter.describe_device(),
            versions={"torch": torch.__version__, "python": machine.python_version(), **self.adapter.versions()},
            sandbox=self.workers.sandbox,
            timer=TIMER,
            samples=samples,
            statistics=STATISTICS,
            stages=stages.seconds,
            conditions=trial.conditions,
            unavailable=trial.unavailable,
            trace=trial.trace,
        )
        unsafe = (UNSAFE,) if self.workers.unsafe else ()
        return Evaluation(verdict=verdict, receipt=receipt, labels=(*labels, *unsafe))

    def build(self, ahead: Ahead) -> Workload:
        """What an evaluation would build, so that it finds it. Nothing is judged: what fails now fails again then."""
        instance, workload = self._open(ahead.problem)
        if ahead.candidate is not None:
            self.say(WORDS["build"])
            with suppress(Fault), closing(self.contestant(ahead.candidate.digest)) as contestant:
                contestant.load(ahead.candidate.source, "candidate.py", ENTRY)
                contestant.construct(instance, 0)
                contestant.call(instance.inputs(0), compiling=True)
        if self.court.compile_baseline:
            self.compiled.build(instance)
        return workload

    def profile(self, case: Case) -> Profile:
        """Raises EvaluationError when the program cannot be run."""
        instance, workload = self._open(case.problem)
        seed = secrets.randbits(62)
        contestant = self.contestant(case.candidate.digest)
        try:
            contestant.load(case.candidate.source, "candidate.py", ENTRY)
            contestant.construct(instance, seed)
            if case.problem.state_digest is not None:
                contestant.set_state(Reference(instance, seed).state())
            self.say(WORDS["profile"])
            seconds = case.seconds or _seconds_a_call(contestant, instance, self.output_bytes)
            rows = contestant.profile(instance.inputs(seed), PROFILED_CALLS)
        except Fault as fault:
            state, reason = fault.verdict.state.replace("_", " "), fault.verdict.reason
            raise EvaluationError(f"the program cannot be profiled: {state}: {reason}") from None
        finally:
            contestant.close()
        total = sum(row[2] for row in rows) or 1.0
        spots = tuple(HotSpot(name=n, calls=c, seconds=s, share=s / total) for n, c, s in rows)
        export, missing = self._ladder.climb(instance, case.candidate, seed) if case.counters else (None, "")
        notes = [] if export is None else list(imported.notes(export, COUNTED_CALLS))
        return digest(
            tool=" and ".join(("torch.profiler", *(export.tools if export is not None else ()))),
            seconds=seconds,
            hot_spots=spots,
            roofline=roofline(workload, self.peaks(), self.court.precision),
            workload=workload,
            kernels=export.kernels if export is not None else (),
            notes=[*notes, *([missing] if missing else [])],
        )

    def sanitize(self, case: Case) -> Sanitization:
        """A few correctness cases under the platform's sanitizer."""
        instance, _ = self._open(case.problem)
        self.say(WORDS["sanitize"])
        return SanitizedTrial(self, instance, case.candidate).run()

    def peaks(self, *, fresh: bool = False) -> Peaks:
        """Measured once per device, then known."""
        where = (self.adapter.describe_device(), torch.__version__)
        known = None if fresh else self.measurements.get(Peaks, *where)
        if known is None:
            self.say(WORDS["calibrate"])
            before = Snapshot.take([os.getpid()])
            known = self.adapter.measure_peaks()
            quiet = foreign_share(before, Snapshot.take([os.getpid()])) <= BUSY_SHARE
            self.measurements.put(known, *where, lasting=quiet)
        return known

    def is_fit(self) -> bool:
        """Whether another problem may be judged here: none so far has left anything behind."""
        return self._before is None or self._before.holds()

    def close(self) -> None:
        self._drop_problem()
        self.workers.close()

    # --- shared parts ----------------------------------------------------------------------------------------

    def builds(self, build_key: str) -> Path:
        """Builds are cached per program, so that no program can touch another one's."""
        of_all = self.cache / "builds"
        with suppress(OSError):  # who needs the folder says what is wrong with it
            of_all.mkdir(mode=0o700, parents=True, exist_ok=True)
            of_all.chmod(0o700)  # also one that an older kforge made: programs choose the modes of what is in it
        return of_all / build_key[:20]

    def contestant(
        self,
        build_key: str,
        *,
        trusted: bool = False,
        under: platforms.Overseer | Prepared | None = None,
        ready: bool = True,
    ) -> Contestant:
        """A fresh worker, maybe under a sanitizer or a profiler, or prepared for more than others.

        What another process wrote into shared device memory looks uninitialized to a sanitizer, so nothing is shared.
        """
        builds = self.builds(build_key)
        return Contestant(
            self.workers.take(builds, under),
            platform_folder=self.platform.folder,
            build_cache=builds,
            # room for any right answer; of a larger one only its shape is told
            output_bytes=bytes_of_specs((*self.workload.outputs, *self.workload.parameters)),
            call_deadline=self.court.call_deadline,
            precision=self.court.precision,
            reach=self._reach() if not isinstance(under, platforms.Sanitizer) else Reach(self._home),
            trusted=trusted,
            ready=ready,
        )

    @property
    def _home(self) -> str | torch.device:
        """Where references are computed."""
        return HOST if self.adapter.device_memory() is None else self.adapter.device()

    def _reach(self) -> Reach:
        if self.economy.memory is not None:
            return self.economy.spare(DeviceReach(self.adapter, self.economy.memory))
        on_host = torch.device(self.adapter.device()) == HOST
        return self.economy.spare(HostReach() if on_host and READS_PROCESSES else Reach())

    def _not_for_want_of_space(self, verdict: Verdict) -> None:
        """Raises InputError when the disk is full: a program that could not be built then is not to blame.

        Its worker is gone by now, and with it what it kept beyond its share.
        """
        if not isinstance(verdict, CompilationFailure | RuntimeFailure) or not self.cache.exists():
            return
        space = os.statvfs(self.cache)
        if space.f_bavail * space.f_frsize < LEAST_BUILD_SPACE or (space.f_files and not space.f_favail):
            reason = f"No space left on device for builds in {self.cache}, so nothing can be said about the program"
            raise InputError(f"{reason} (it failed with: {verdict.reason})")

    @property
    def workload(self) -> Workload:
        """Of the problem that is open."""
        assert self._workload is not None
        return self._workload

    @property
    def output_bytes(self) -> int:
        """Of one call on that problem."""
        return bytes_of_specs(self.workload.outputs)

    def early_trusted(self, instance: Instance) -> Contestant | None:
        """A worker for `trusted` that makes itself ready meanwhile, where that takes long: on a device."""
        if self.adapter.device_memory() is None or self.economy.is_short:
            return None
        contestant = self.contestant(instance.problem.digest, trusted=True, ready=False)
        contestant.begin()
        return contestant

    def trusted(
        self,
        instance: Instance,
        *,
        compile_mode: str = "",
        hasty: bool = False,
        under: Prepared | None = None,
        contestant: Contestant | None = None,
    ) -> Contestant:
        """The reference in a worker of its own, as a candidate is run, ready to be timed. Raises EvaluationError."""
        contestant = contestant or self.contestant(instance.problem.digest, trusted=True, under=under, ready=False)
        try:
            contestant.await_ready()
            contestant.load(instance.problem.source, "problem.py", "Model")
            seed = secrets.randbits(62)
            contestant.construct(instance, seed, compile_mode=compile_mode, hasty=hasty)
            if instance.problem.state_digest is not None:
                contestant.set_state(Reference(instance, seed).state())
            contestant.call(instance.inputs(seed), compiling=bool(compile_mode))
        except EvaluationError:
            contestant.close()
            raise
        return contestant

    def _open(self, problem: Problem) -> tuple[Instance, Workload]:
        if self._instance is None or self._instance.problem.digest != problem.digest:
            self._drop_problem()
            self.say(WORDS["problem"])
            self.adapter.prepare()
            # torch's own error at the declared precision is what tolerances come from
            self.adapter.use_precision(self.court.precision)
            self._before = self._before or Standing()
            # where memory is shared everything is made and judged on the device; elsewhere on the host, and copied
            instance = instantiate(problem, self._home)
            start = time.monotonic()
            workload = instance.describe()
            described = time.monotonic() - start
            if "nondeterministic" in workload.labels:
                raise ProblemError(
                    f"{problem.name}: the reference gives different outputs for the same inputs, so nothing can be "
                    "judged by it; its random numbers must come from the generators of torch, numpy or `random`"
                )
            self.economy.plan(instance, workload, described)
            findings = lint(self.economy.linted(instance))
            unsteady = ("unsteady_reference",) if "unsteady" in workload.labels else ()
            self.findings = (*findings, *unsteady, *self.economy.labels)
            self._instance, self._workload = instance, workload
            if self.economy.is_short:
                self.economy.let_go()
        assert self._workload is not None
        return self._instance, self._workload

    def _drop_problem(self) -> None:
        self._instance = self._workload = None

    def identity(self, mode: str) -> str:
        court = self.court
        return identity(mode, torch_version=torch.__version__, threads=court.threads, precision=court.precision)


def _seconds_a_call(contestant: Contestant, instance: Instance, output_bytes: int) -> float:
    """Median over short blocks of calls on fresh inputs; for a profile only, no claim rests on it.

    In blocks, as when it is timed: a single call of a device's program is mostly waiting for its end.
    """
    times: list[float] = []
    calls = 1
    for index in range(12):
        inputs = instance.inputs(index)
        contestant.prepare([inputs] * calls)
        times.append(contestant.run_block().claimed / calls)
        if index == 1:  # the first call is none to go by
            wanted = int(BLOCK_SECONDS / max(times[1], 1e-9))
            # a quarter of what timing takes: these inputs are copied for nothing but a profile
            calls = max(1, min(wanted, MAX_CALLS_PER_BLOCK, sets_in_memory(inputs, output_bytes) // 4))
    return float(np.median(times[2:]))
