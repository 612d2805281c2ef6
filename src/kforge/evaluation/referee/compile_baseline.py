"""The `torch.compile` baseline: built in a trusted worker, timed against eager once, and then cached. (torch)"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import torch

from kforge.errors import EvaluationError
from kforge.evaluation.baselines import NOT_COMPILED, CompileBaseline, compiled_as, haste
from kforge.evaluation.constants import COMPILED_HALF_WIDTH
from kforge.evaluation.processes.worker_fork_server import FRONT, WHOLE
from kforge.evaluation.processes.worker_start import Prepared
from kforge.evaluation.stages import WORDS
from kforge.evaluation.timing.race import Duration, Race
from kforge.problems.tensors import HOST

if TYPE_CHECKING:
    from kforge.evaluation.referee.workers import WorkerFactory
    from kforge.evaluation.worker_client.client import WorkerClient
    from kforge.problems.instance import Instance

QUICK_FAILURE = 20.0
"""Seconds. If a prepared worker fails within this time, the compiler is tried again in a plain worker."""


class CompileBaselines:
    """Measures the `torch.compile` baselines of problems, in the mode that the setup names."""

    def __init__(self, workers: WorkerFactory) -> None:
        self._workers = workers
        self._times = 0
        """Number of baselines that this referee has started to compile."""
        self._prepares = True
        """Whether prepared workers are used. False once a plain worker has succeeded where a prepared one failed."""

    def baseline(self, instance: Instance) -> CompileBaseline:
        """Return how `torch.compile` compares with eager on this problem: from the cache, or measured now."""
        known = self.known(instance)
        if known is None:
            known = self._measure(instance)
            known = known.model_copy(update={"measured_at": time.time()})
            self._workers.measurements.put(known, *self._place(instance))
        return known

    def build(self, instance: Instance) -> None:
        """Compile the baseline in advance, so that a later measurement finds it in the cache. Failures are ignored."""
        if self.known(instance) is None:
            self._workers.say(WORDS["compile baseline"])
            with suppress(EvaluationError), closing(self._worker(instance)):
                pass

    @property
    def _identity(self) -> str:
        return self._workers.identity(compiled_as(self._workers.setup.compile_mode))

    def _place(self, instance: Instance) -> tuple[str, ...]:
        """Return the parts of the cache key: problem, device and identity of the baseline."""
        return instance.problem.digest, self._workers.adapter.describe_device(), self._identity

    def known(self, instance: Instance) -> CompileBaseline | None:
        """Return the measurement from the cache; None if it is not cached."""
        return self._workers.measurements.get(
            CompileBaseline, *self._place(instance), believe=lambda found: found.holds(time.time())
        )

    def _measure(self, instance: Instance) -> CompileBaseline:
        """Compile the reference and time it against eager. A failure gives a baseline with `unavailable`."""
        workers, name = self._workers, self._identity
        workers.say(WORDS["compile baseline"])
        try:
            with closing(self._worker(instance)) as compiled, closing(workers.reference_worker(instance)) as eager:
                workers.say("timing the torch.compile baseline")
                race = Race(
                    eager,
                    compiled,
                    draw=instance.input_sets,
                    output_bytes=workers.output_bytes,
                    limits=workers.adapter.limits,
                    duration=Duration(
                        seconds=2 * workers.setup.timing_seconds,
                        longest=workers.setup.timing_cap,
                        is_decided=lambda samples: samples.is_tight(COMPILED_HALF_WIDTH),
                        say=lambda progress: workers.say(f"{WORDS['time compiled']}: {progress}"),
                    ),
                )
                samples = race.run()
        except EvaluationError as error:
            return CompileBaseline(identity=name, unavailable=str(error))
        return CompileBaseline(
            identity=name,
            log_ratios=tuple(float(x) for x in samples.log_ratios),
            seconds=samples.candidate_seconds().median,
            doubt=samples.doubt,
        )

    def _worker(self, instance: Instance) -> WorkerClient:
        """Return a worker with the compiled reference, after its first call. Raises EvaluationError if it
        cannot be compiled or called.

        Importing torch's compiler takes longer than importing torch. So from the second baseline on, the worker is
        forked from a fork server that has imported it (on a host only its front, because the rest remembers folders of
        the importing process). At first torch's compiler assumes what the host's C++ compiler can do. Only if that
        fails, the baseline is compiled again with tests of the C++ compiler.
        """
        mode, begin = self._workers.setup.compile_mode, time.monotonic()
        on_host = torch.device(self._workers.adapter.device()) == HOST
        variables = haste(mode, on_host=on_host)
        ways: list[Prepared | None] = [None]
        self._times += 1
        if self._times > 1 and variables and self._prepares:
            ways.insert(0, Prepared(variables, FRONT if on_host else WHOLE))
        for under in ways:
            try:
                worker = self._workers.reference_worker(instance, compile_mode=mode, hasty=True, under=under)
            except EvaluationError as error:
                if NOT_COMPILED in str(error):
                    break
                if under is None or time.monotonic() - begin > QUICK_FAILURE:
                    raise
                self._workers.say(f"{WORDS['compile baseline']}: again, in a worker with nothing prepared")
            else:
                self._prepares = self._prepares and (under is not None or len(ways) == 1)
                return worker
        return self._workers.reference_worker(instance, compile_mode=mode)
