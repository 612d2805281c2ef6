"""The worker factory: a fresh worker process for every candidate and every baseline of the open problem. (torch)

A baseline that is kept running grows slower with every evaluation, because its memory scatters: by 5 % in five of them.
So baselines get a fresh worker each time, too.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kforge import platforms
from kforge.errors import EvaluationError
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
"""Whether the outputs of a timed block can be read from a frozen worker."""


class WorkerFactory:
    """Starts workers by the referee's setup, and holds what all stages of an evaluation share."""

    def __init__(self, setup: RefereeSetup, fork_server: Workers, say: Callable[[str], None]) -> None:
        """`say` gets progress reports."""
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
        """Make workers for a problem with this workload from now on; None: for no problem."""
        self._workload = workload

    @property
    def workload(self) -> Workload:
        """The workload of the open problem."""
        assert self._workload is not None
        return self._workload

    @property
    def sandbox(self) -> str:
        """The sandbox layer in use: what it covers, and what it does not."""
        return self._fork_server.sandbox

    @property
    def unsafe(self) -> bool:
        """Whether workers run without a sandbox."""
        return self._fork_server.unsafe

    def close(self) -> None:
        self._fork_server.close()

    def builds(self, build_key: str) -> Path:
        """The folder for the builds of one program: no program can touch those of another."""
        of_all = self.cache / "builds"
        with suppress(OSError):  # the first use of the folder reports what is wrong with it
            of_all.mkdir(mode=0o700, parents=True, exist_ok=True)
            of_all.chmod(0o700)  # also one that an older kforge made: programs choose the modes of what is in it
        return of_all / build_key[:20]

    def worker(
        self,
        build_key: str,
        *,
        trusted: bool = False,
        under: platforms.Overseer | Prepared | None = None,
        ready: bool = True,
    ) -> WorkerClient:
        """Start a worker, optionally under a sanitizer or profiler, or with torch's compiler imported.

        To a sanitizer, data that another process wrote into shared device memory looks uninitialized, so nothing is
        shared.
        """
        builds = self.builds(build_key)
        return WorkerClient(
            self._fork_server.take(builds, under),
            wire.Begin(str(self.platform.folder), str(builds), self.setup.precision),
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
        """The device of references: the accelerator where it shares memory, else the host."""
        return HOST if self.adapter.device_memory() is None else self.adapter.device()

    def _access(self) -> OutputAccess:
        if self.memory_plan.memory is not None:
            return self.memory_plan.spare(DeviceAccess(self.adapter, self.memory_plan.memory))
        on_host = torch.device(self.adapter.device()) == HOST
        return self.memory_plan.spare(HostAccess() if on_host and READS_PROCESSES else OutputAccess())

    @property
    def output_bytes(self) -> int:
        """Bytes of the outputs of one call."""
        return bytes_of_specs(self.workload.outputs)

    def early_reference_worker(self, instance: Instance) -> WorkerClient | None:
        """Start a worker for `reference_worker` in advance, on a device, where starting takes long; else None."""
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
        """The reference in a separate worker, loaded, called once and ready to be timed. Raises EvaluationError."""
        client = client or self.worker(instance.problem.digest, trusted=True, under=under, ready=False)
        try:
            client.await_ready()
            client.load(instance.problem.source, "problem.py", "Model")
            seed = secrets.randbits(62)
            client.construct(instance, seed, compile_mode=compile_mode, hasty=hasty)
            if instance.problem.state_digest is not None:
                client.set_state(Reference(instance, seed).state())
            client.call(instance.inputs(seed), compiling=bool(compile_mode))
        except EvaluationError:
            client.close()
            raise
        return client

    def identity(self, mode: str) -> str:
        """Return what a baseline's measurement depends on besides problem and device, as text."""
        setup = self.setup
        return identity(mode, torch_version=torch.__version__, threads=setup.threads, precision=setup.precision)
