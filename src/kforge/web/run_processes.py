"""Starts, stops and resumes runs. A run is a process of its own, `kforge forge` or `kforge resume`, which goes on when
the server ends.

A request names a problem of the server and one of the models that the user allowed. It cannot name a file, a platform
or a folder of platforms, and it cannot switch the sandbox off: those come from the command line of the server. A run
that others made is not resumed here: `kforge resume` asks for permission at a terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from kforge import durable
from kforge.errors import InputError, RunError, ServiceBusy
from kforge.search import strategy
from kforge.store.folder import run_paths
from kforge.web.folders import holder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kforge.service.evaluations import EvaluationService

MOST_AT_ONCE = 1
"""Runs of the server that go on at once: two on one device would disturb each other's timing."""
MOST_ITERATIONS = 1000
"""Most attempts of a run that a request may ask for."""
ENDING_SECONDS = 20.0
"""Seconds that a process has to end after it has released its run: its referee ends first."""
KEPT_JOBS = 20
"""Number of latest processes that the pages still list."""
LAST_BYTES = 4096
"""Bytes at the end of a process's output that are read for its last line."""


@dataclass(frozen=True)
class NewRun:
    """A request to start a run."""

    problem: str
    model: str = ""
    """Empty for the first of the server's models."""
    iterations: int = 5
    search: str = "linear"
    minutes: float = 0.0
    """Most minutes of the run; 0 for no limit."""


@dataclass
class Job:
    """A process that the server has started."""

    about: str
    """What it does, in a few words."""
    process: subprocess.Popen[bytes]
    output: IO[bytes] = field(repr=False)
    folder: Path | None = None
    """The run that it works on; None until it is known."""
    began: float = field(default_factory=time.monotonic)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def status(self) -> int | None:
        """Exit status; None while it runs."""
        return self.process.poll()

    def last_line(self) -> str:
        """Return the last line that the process has written."""
        size = os.fstat(self.output.fileno()).st_size
        said = os.pread(self.output.fileno(), LAST_BYTES, max(size - LAST_BYTES, 0)).decode(errors="replace")
        return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")


class RunProcesses:
    """Starts, stops and resumes runs as processes, and lists the latest processes."""

    def __init__(
        self,
        service: EvaluationService,
        root: Path,
        models: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`root`: the folder of runs. `models`: the names that a request may choose from. `environment`: that of the
        processes; None for the server's own."""
        self.service = service
        self.root = root
        self.models = tuple(models)
        self._environment = environment
        self._jobs: list[Job] = []
        self._one_at_a_time = threading.Lock()

    def start(self, wanted: NewRun) -> Job:
        """Begin a run. Raises InputError for an unknown problem, model or search strategy and for bad limits, and
        ServiceBusy while another run goes on."""
        problem = self.service.problem(wanted.problem)
        model = wanted.model or self.models[0]
        if model not in self.models:
            raise InputError(f"the model must be one of {', '.join(self.models)}; `kforge serve --model` allows others")
        if not 1 <= wanted.iterations <= MOST_ITERATIONS:
            raise InputError(f"iterations must be from 1 to {MOST_ITERATIONS}")
        if not 0 <= wanted.minutes < float("inf"):
            raise InputError("minutes must be 0 (no limit) or more")
        try:
            strategy(wanted.search)
        except ValueError as error:
            raise InputError(f"search: {error}") from None
        folder = self.service.settings.state / "served" / problem.digest[:16]
        file = folder / f"{problem.name.replace(os.sep, '_')}.py"
        durable.make_folder(folder)
        durable.write(file, problem.source)
        policy, options = self.service.options.policy, self.service.options
        arguments = [
            "forge", str(file), "-p", self.service.platform.name, "-m", model, "-n", str(wanted.iterations),
            "--search", wanted.search, "--precision", policy.precision, "--track", policy.track,
            "--compile-baseline" if policy.compile_baseline else "--no-compile-baseline",
            "--compile-mode", policy.compile_mode,
            *(("--budget-minutes", str(wanted.minutes)) if wanted.minutes else ()),
            *(("--unsafe",) if policy.unsafe else ()),
            *(part for each in options.platform_dirs for part in ("--platform-dir", str(each))),
        ]  # fmt: skip
        return self._launch(f"new run of {wanted.problem} with {model}", arguments, None)

    def resume(self, folder: Path) -> Job:
        """Resume a run or suite. Raises ServiceBusy while another one goes on, and RunError if a process works on it
        already."""
        if holder(folder) is not None:
            raise RunError(f"a process works on {folder.name} already; stop it, or wait for its end")
        for job in self.jobs():
            if job.folder == folder:  # the process has released the run, and still ends its children
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.process.wait(ENDING_SECONDS)
        return self._launch(f"resume {folder.name}", ["resume", str(folder)], folder)

    def stop(self, folder: Path) -> None:
        """Interrupt the process that works on a run or suite, as Ctrl-C does; `resume` goes on with it.

        Raises RunError if no process works on it.
        """
        job = next((each for each in self.jobs() if each.is_running and each.folder == folder), None)
        pid = job.process.pid if job is not None else holder(folder)
        if pid is None or pid == os.getpid():
            raise RunError(f"no process works on {folder.name} that could be stopped")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)

    def jobs(self) -> list[Job]:
        """Return the latest processes, the newest first, each with its run as far as that is known."""
        with self._one_at_a_time:
            jobs = list(reversed(self._jobs))
        nameless = {job.process.pid: job for job in jobs if job.folder is None}
        if nameless:
            for path in run_paths(self.root)[-KEPT_JOBS:]:
                with contextlib.suppress(OSError, ValueError):
                    if job := nameless.get(int((path / "lock").read_bytes()[:20])):
                        job.folder = path
        return jobs

    def _launch(self, about: str, arguments: list[str], folder: Path | None) -> Job:
        with self._one_at_a_time:
            going_on = [job.about for job in self._jobs if job.is_running]
            if len(going_on) >= MOST_AT_ONCE:
                raise ServiceBusy(f"another run goes on ({going_on[0]}): stop it, or wait for its end")
            output = tempfile.TemporaryFile()  # noqa: SIM115 - kept as long as the job
            process = subprocess.Popen(
                [sys.executable, "-m", "kforge", *arguments, "-o", str(self.root)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env=self._environment,
                # a server that a shell started in the background ignores interrupts; its runs must not inherit that
                preexec_fn=_heed_interrupts,
            )  # fmt: skip
            job = Job(about, process, output, folder)
            self._jobs.append(job)
            for old in [each for each in self._jobs if not each.is_running][:-KEPT_JOBS]:
                old.output.close()
                self._jobs.remove(old)
            return job


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
