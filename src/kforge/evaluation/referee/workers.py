"""The worker factory: starts a fresh worker process for every candidate and every baseline of the open problem. (torch)

A baseline that keeps running gets slower with every evaluation, because its memory becomes fragmented: 5 % after five.
So baselines get a fresh worker each time, too.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kforge import platforms
from kforge.evaluation.baselines import identity
from kforge.evaluation.large_problems.plan import MemoryPlan, bytes_of_specs
from kforge.evaluation.referee.measurement_cache import Measurements
from kforge.evaluation.reference.reference import Reference
from kforge.evaluation.transport import wire
from kforge.evaluation.worker_client.client import WorkerClient
from kforge.evaluation.worker_client.device_access import DeviceAccess
from kforge.evaluation.worker_client.output_access import HostAccess, OutputAccess
from kforge.problems.tensors import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.processes.worker_start import Prepared, Workers
    from kforge.evaluation.transport.options import RefereeSetup
    from kforge.problems.instance import Instance
    from kforge.records import Workload

READS_PROCESSES = Path("/proc/self/mem").exists()
"""Whether this system lets the referee read the memory of a stopped worker."""


class WorkerFactory:
    """Starts workers as the referee's setup says, and holds what all stages of an evaluation share."""

    def __init__(self, setup: RefereeSetup, fork_server: Workers, say: Callable[[str], None]) -> None:
        """`say` receives progress messages."""
        self.setup = setup
        self.say = say
        self.platform = platforms.load_folder(Path(setup.platform_folder))
        self.adapter = self.platform.adapter
        self.emulated = self.adapter.emulated()
        self.cache = Path(setup.cache)
        self.measurements = Measurements(self.cache)
        self.memory_plan = MemoryPlan(self.adapter, setup.memory)
        self._fork_server = fork_server
        self._workload: Workload | None = None

    def open(self, workload: Workload | None) -> None:
        """Start workers for a problem with this workload from now on; None closes the problem."""
        self._workload = workload

    @property
    def workload(self) -> Workload:
        """The workload of the open problem."""
        assert self._workload is not None
        return self._workload

    @property
    def sandbox(self) -> str:
        """Description of the sandbox layer in use: what it protects and what it does not."""
        return self._fork_server.sandbox

    @property
    def unsafe(self) -> bool:
        """Whether workers run without a sandbox."""
        return self._fork_server.unsafe

    def close(self) -> None:
        self._fork_server.close()

    def builds(self, build_key: str) -> Path:
        """Return the folder for the builds of one program. No program can access the folder of another."""
        of_all = self.cache / "builds"
        with suppress(OSError):  # the first use of the folder reports what is wrong with it
            of_all.mkdir(mode=0o700, parents=True, exist_ok=True)
            of_all.chmod(0o700)  # an older kforge may have left it open; programs choose the modes of what is in it
        return of_all / build_key[:20]

    def worker(
        self,
        build_key: str,
        *,
        trusted: bool = False,
        under: platforms.Overseer | Prepared | None = None,
        ready: bool = True,
        lines: bool = False,
    ) -> WorkerClient:
        """Start a worker, optionally under a sanitizer or profiler, or with torch's compiler imported (`under`).

        With `lines`, its builds keep line numbers, for a profile; their machine code is the same. Under a sanitizer no
        device memory is shared, because data from another process would look uninitialized to it.
        With `ready` false, the caller must call `await_ready`, and may call `begin` before.
        """
        builds = self.builds(build_key)
        return WorkerClient(
            self._fork_server.take(builds, under),
            wire.Begin(
                str(self.platform.folder),
                str(builds),
                self.setup.precision,
                list(self.adapter.line_flags) if lines else [],
            ),
            # room for any right answer; for a larger one only its shape is sent
            output_bytes=bytes_of_specs((*self.workload.outputs, *self.workload.parameters)),
            call_deadline=self.setup.call_deadline,
            access=self._access()
            if not isinstance(under, platforms.Sanitizer)
            else OutputAccess(self.reference_device),
            trusted=trusted,
            ready=ready,
        )

    @property
    def reference_device(self) -> str | torch.device:
        """The device on which references run: the accelerator if its memory can be shared, otherwise the host."""
        return HOST if self.adapter.device_memory() is None else self.adapter.device()

    def _access(self) -> OutputAccess:
        """Return the way in which the referee accesses a worker's memory."""
        if self.memory_plan.memory is not None:
            return self.memory_plan.spare(DeviceAccess(self.adapter, self.memory_plan.memory))
        on_host = torch.device(self.adapter.device()) == HOST
        return self.memory_plan.spare(HostAccess(self.adapter) if on_host and READS_PROCESSES else OutputAccess())

    @property
    def output_bytes(self) -> int:
        """Bytes of the outputs of one call."""
        return bytes_of_specs(self.workload.outputs)

    def early_reference_worker(self, instance: Instance) -> WorkerClient | None:
        """Start a worker for `reference_worker` in advance, because starting takes long on a device. Returns None on a
        host, or if memory is short."""
        if self.adapter.device_memory() is None or self.memory_plan.is_short:
            return None
        client = self.worker(instance.problem.digest, trusted=True, ready=False)
        client.begin()
        return client

    def reference_worker(
        self,
        instance: Instance,
        *,
        compile_mode: str = "",
        hasty: bool = False,
        under: Prepared | None = None,
        client: WorkerClient | None = None,
    ) -> WorkerClient:
        """Return a worker that has loaded the reference, has called it once, and is ready to be timed. Raises
        EvaluationError if the worker dies or the reference fails in it, and ProblemError if the problem cannot be
        constructed. The worker is closed if anything is raised.

        `client` is a worker that was started in advance. `compile_mode` and `hasty` are for a compiled baseline, see
        `wire.Construct`.
        """
        client = client or self.worker(instance.problem.digest, trusted=True, under=under, ready=False)
        try:
            client.await_ready()
            client.load(instance.problem.source, "problem.py", "Model")
            seed = secrets.randbits(62)
            client.construct(instance, seed, compile_mode=compile_mode, hasty=hasty)
            if instance.problem.state_digest is not None:
                client.set_state(Reference(instance, seed).state())
            client.call(instance.inputs(seed), compiling=bool(compile_mode))
        except BaseException:  # also a ProblemError, or an interruption: nobody else could close this worker
            client.close()
            raise
        return client

    def identity(self, mode: str) -> str:
        """Return text that identifies a baseline: everything but problem and device that its measurement depends on."""
        setup = self.setup
        return identity(mode, torch_version=torch.__version__, threads=setup.threads, precision=setup.precision)
