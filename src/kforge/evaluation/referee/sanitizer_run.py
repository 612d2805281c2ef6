"""Runs a correct program under its platform's sanitizers on a few cases, and returns their findings. (torch)

A sanitizer sees only the code that `kforge.inline` built for it. Outputs that are grossly wrong are findings, too. A
program could avoid being instrumented. That weakens no verdict: findings only help an honest author, and the sandbox
does not depend on them.
"""

from __future__ import annotations

import ast
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError
from kforge.evaluation.constants import (
    LEAST_ROWS,
    SANITIZED_DISTRIBUTIONS,
    SANITIZED_PRECISION,
    SANITIZED_SECONDS,
    SANITIZED_TOTAL_SECONDS,
    SANITIZER_ENDS,
    WATCHED_TRIES,
)
from kforge.evaluation.correctness.check import CorrectnessCheck
from kforge.evaluation.stages import WORDS
from kforge.evaluation.static_check import ENTRY
from kforge.evaluation.timing.kernel_ownership import SHOWN_NAME
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.platforms import NoSanitizer
from kforge.records import (
    CompilationFailure,
    Mismatch,
    NotSanitized,
    Rejected,
    RuntimeFailure,
    Sanitization,
    SanitizedClean,
    SanitizerFinding,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.referee.workers import WorkerFactory
    from kforge.evaluation.worker_client.orders import Failure
    from kforge.platforms import Sanitizer, SanitizerReport
    from kforge.problems.instance import Instance
    from kforge.records import Candidate

    Outcome = SanitizedClean | SanitizerFinding | NotSanitized

PROGRAM = "candidate.py"
"""File name of the program in reports."""
FOLDER = "sanitized"
"""Name of the folder for builds under a sanitizer, inside the folder of the program's builds."""


class TooSlow(Exception):
    """A call took too long under a sanitizer. This says nothing about the program; a smaller case may work."""


class SanitizerRun:
    """Runs one candidate on one problem under each sanitizer of its platform, until one has a finding."""

    def __init__(self, workers: WorkerFactory, instance: Instance, candidate: Candidate) -> None:
        self.workers = workers
        self.instance = instance
        self.candidate = candidate
        self._ahead: dict[str, WorkerClient] = {}
        """Workers that were started in advance, by the names of their sanitizers."""

    def run(self) -> Sanitization:
        """Run the sanitizers and return the outcome; a failure of a sanitizer is an outcome, too.

        Raises ProblemError if the reference itself fails.
        """
        start = time.monotonic()
        sanitizers = self.workers.adapter.sanitizers()
        outcome: Outcome
        if isinstance(sanitizers, NoSanitizer):
            outcome = NotSanitized(reason=sanitizers.reason)
        else:
            try:
                outcome = self._in_turn(sanitizers, start + SANITIZED_TOTAL_SECONDS)
            finally:
                for client in self._ahead.values():
                    client.close()
        return Sanitization(outcome=outcome, seconds=round(time.monotonic() - start, 3))

    def _in_turn(self, sanitizers: tuple[Sanitizer, ...], end: float) -> Outcome:
        """Return the first finding. If nothing was found, return which sanitizers found the program clean, and
        which could not tell."""
        clean: list[SanitizedClean] = []
        not_run: list[str] = []
        for sanitizer, following in zip(sanitizers, (*sanitizers[1:], None), strict=True):
            # a message for each: together the sanitizers may take longer than a referee may be silent
            self.workers.say(f"{WORDS['sanitize']}: {sanitizer.name}")
            if following is not None and following.unsuited(self.candidate.source) is None:
                with suppress(Fault, EvaluationError):  # reported when its turn comes
                    self._ahead[following.name] = self._started(following)
            match self._within(sanitizer, end):
                case SanitizerFinding() as finding:
                    return finding
                case SanitizedClean() as one:
                    clean.append(one)
                case NotSanitized(reason=reason):
                    not_run.append(reason)
        if not clean:
            return NotSanitized(reason="; ".join(dict.fromkeys(not_run)))
        names = ", ".join(one.sanitizer for one in clean)
        return SanitizedClean(sanitizer=names, cases=min(one.cases for one in clean), not_run=tuple(not_run))

    def _within(self, sanitizer: Sanitizer, end: float) -> Outcome:
        """Run one sanitizer on the whole problem or, if that is too slow, on fewer rows."""
        if (reason := sanitizer.unsuited(self.candidate.source)) is not None:
            return NotSanitized(reason=reason)
        if time.monotonic() > end:
            return NotSanitized(reason=f"no time was left for {sanitizer.name}")
        if sanitizer.blind_to is not None and (reason := self._unseen(sanitizer.blind_to)):
            return NotSanitized(reason=f"{sanitizer.name} cannot check the program: {reason}")
        try:
            return self._try(sanitizer, self.instance)
        except TooSlow as error:
            slow = str(error)
        smaller = self.instance.smaller(LEAST_ROWS) if time.monotonic() < end else None
        if smaller is None:
            return NotSanitized(reason=slow)
        try:
            outcome = self._try(sanitizer, smaller)
        except TooSlow:
            return NotSanitized(reason=slow)
        match outcome:
            case SanitizedClean(sanitizer=name):
                return outcome.model_copy(update={"sanitizer": f"{name} (on fewer rows)"})
            case SanitizerFinding(failure=failure):  # a program need only be right for the shapes it was judged on
                return NotSanitized(reason=f"{slow}; on fewer rows, which it need not support: {failure.reason}")
        return outcome

    def _try(self, sanitizer: Sanitizer, instance: Instance) -> Outcome:
        """Run one sanitizer on a problem in a worker. Raises TooSlow."""
        try:
            client = self._ahead.pop(sanitizer.name, None) or self._started(sanitizer)
            client.await_ready()
        except (Fault, EvaluationError) as error:
            return NotSanitized(reason=f"no worker starts under {sanitizer.name}: {_why(error)}")
        try:
            if sanitizer.planted:
                return self._judge_to_its_end(client, sanitizer, instance)
            return self._judge(client, sanitizer, instance)
        except Fault as fault:
            return self._outcome(fault.verdict, sanitizer)
        finally:
            client.close()

    def _unseen(self, blind_to: Callable[[str, str], bool]) -> str:
        """Return why a sanitizer cannot see everything that a call writes; empty if it can."""
        try:
            kernels = self._kernels()
        except (Fault, EvaluationError) as error:
            return _why(error)
        others = [name for name in kernels if blind_to(self.candidate.source, name)]
        if not kernels:
            return "the profiler does not show which kernels it runs"
        return f"it also runs {others[0][:SHOWN_NAME]}" if others else ""

    def _kernels(self) -> list[str]:
        """Return the names of the kernels that a call runs on the device, recorded in a worker without a sanitizer."""
        client = self.workers.worker(self.candidate.digest)
        try:
            client.load(self.candidate.source, PROGRAM, ENTRY)
            client.construct(self.instance, secrets.randbits(62))
            for _ in range(WATCHED_TRIES):
                client.block.prepare([self.instance.inputs(secrets.randbits(62))])
                if kernels := client.block.watch()[0]:
                    return [name for name, _, _ in kernels]
            return []
        finally:
            client.close()

    def _started(self, sanitizer: Sanitizer) -> WorkerClient:
        """Start a worker under a sanitizer without waiting until it is ready: a new interpreter takes seconds."""
        client = self.workers.worker(self.candidate.digest, under=sanitizer, ready=False)
        client.begin()
        return client

    def _judge(self, client: WorkerClient, sanitizer: Sanitizer, instance: Instance) -> Outcome:
        """Run the cases under a sanitizer that ends the program at its first error."""
        client.sanitize(sanitizer, self.workers.builds(self.candidate.digest) / FOLDER)
        loaded = _mapped(client.pid)
        for runtime in sanitizer.runtimes:
            if runtime not in loaded:
                return NotSanitized(reason=f"{runtime} cannot be loaded")
        cases = self._cases(client, instance)
        if sanitizer.evidence and sanitizer.evidence not in _mapped(client.pid):
            return NotSanitized(reason=_nothing_instrumented(self.candidate.source))
        return SanitizedClean(sanitizer=sanitizer.name, cases=cases)

    def _judge_to_its_end(self, client: WorkerClient, sanitizer: Sanitizer, instance: Instance) -> Outcome:
        """Run the cases under a sanitizer that reports at the end of the process.

        After the cases, the worker commits an error on purpose. If the sanitizer does not report that error, its
        silence about the program proves nothing.
        """
        failure: Failure | None = None
        cases = 0
        try:
            client.sanitize(sanitizer, self.workers.builds(self.candidate.digest) / FOLDER)
            cases = self._cases(client, instance)
        except Fault as fault:
            failure = fault.verdict
        else:
            with suppress(Fault):  # some planted errors also raise an exception in the worker
                client.plant(sanitizer.planted)
        log = client.log_after_exit(SANITIZER_ENDS)
        client.close()
        if (report := sanitizer.read(log)) is not None:
            return self._finding(report, sanitizer)
        match failure:
            case None if sanitizer.proven(log):
                return SanitizedClean(sanitizer=sanitizer.name, cases=cases)
            case None:
                reason = f"{sanitizer.name} did not report an error that was planted, so its silence proves nothing"
                return NotSanitized(reason=f"{reason}{_last_line(log)}")
            case RuntimeFailure(fault="raised" | "died", reason=reason) | Rejected(reason=reason):
                return NotSanitized(reason=f"the program does not run under {sanitizer.name}: {reason}")
            case other:
                return self._outcome(other, sanitizer)

    def _cases(self, client: WorkerClient, instance: Instance) -> int:
        """Run the correctness cases in the worker, and return their number."""
        client.load(self.candidate.source, PROGRAM, ENTRY)
        secret = secrets.token_hex(16)
        check = CorrectnessCheck(
            instance, client, secret=secret, precision=SANITIZED_PRECISION, declared=self.workers.setup.precision
        )
        return check.sample(SANITIZED_DISTRIBUTIONS, SANITIZED_SECONDS)

    def _outcome(self, verdict: Failure, sanitizer: Sanitizer) -> Outcome:
        """Return the outcome for a program that failed under a sanitizer. Raises TooSlow if a call took too long."""
        match verdict:
            case CompilationFailure(reason=reason):
                return NotSanitized(reason=f"the program does not build with {sanitizer.name}: {reason}")
            case RuntimeFailure(fault="timed_out", reason=reason):
                slow = f"too slow under {sanitizer.name}: {reason}"
                if reason.startswith("no answer to call"):
                    raise TooSlow(slow)
                return NotSanitized(reason=slow)
            case RuntimeFailure(fault="died") as died:
                return self._death(died, sanitizer)
            case Mismatch() as wrong:
                reason = f"with {sanitizer.name}, where {sanitizer.conditions}: {wrong.reason}"
                return SanitizerFinding(sanitizer=sanitizer.name, failure=wrong.model_copy(update={"reason": reason}))
            case other:
                return SanitizerFinding(sanitizer=sanitizer.name, failure=other)

    def _death(self, died: RuntimeFailure, sanitizer: Sanitizer) -> Outcome:
        """Return the outcome for a worker that died: a finding, unless memory ran out."""
        report = sanitizer.read(died.log)
        exhausted = "SIGKILL" in died.reason if report is None else report.exhausted
        if exhausted:  # the kernel ends workers first when memory runs out, and a sanitizer needs much of it
            return NotSanitized(reason=f"{died.reason} under {sanitizer.name}: most likely memory ran out")
        if report is None:
            return SanitizerFinding(sanitizer=sanitizer.name, failure=died)
        return self._finding(report, sanitizer)

    def _finding(self, report: SanitizerReport, sanitizer: Sanitizer) -> SanitizerFinding:
        """Return the finding for a sanitizer's report, with the lines of the kernel that the report names."""
        log = "\n".join([report.log, *quoted(self.candidate.source, report.log)])
        failure = RuntimeFailure(fault="died", reason=report.reason, log=log)
        return SanitizerFinding(sanitizer=sanitizer.name, failure=failure)


def quoted(program: str, log: str) -> list[str]:
    """Return the lines of source that a report names.

    Lines of the program itself are always found. Lines of a kernel are found if it is one plain string in the program,
    and the only string of several lines that contains the function's name.
    """
    texts = [node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)]
    own = program.splitlines()
    lines = []
    for function, place, number in dict.fromkeys(_FRAME.findall(log)):
        if place == PROGRAM and 1 <= int(number) <= len(own):  # a kernel in Python is the program itself
            lines.append(f"{place}:{number}: {own[int(number) - 1].strip()}")
            continue
        name = function.partition("(")[0].rpartition("::")[2]
        kernels = [text.splitlines() for text in texts if isinstance(text, str) and "\n" in text and name in text]
        if len(kernels) == 1 and 1 <= int(number) <= len(kernels[0]):
            lines.append(f"{place}:{number}: {kernels[0][int(number) - 1].strip()}")
    return list(dict.fromkeys(lines))


_FRAME = re.compile(r"^    in (.+) at (\S+):(\d{1,6})$", re.MULTILINE)
"""Matches a line of a report that names function, file and line."""


def _mapped(pid: int) -> set[str]:
    """Return the files that a process has mapped, such as its libraries, as the kernel lists them."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line.split(maxsplit=5)[5] for line in lines if line.count("/")}


def _nothing_instrumented(program: str) -> str:
    """Return the reason for a program in which nothing was built for the sanitizer."""
    how = "it builds through torch.utils.cpp_extension" if "cpp_extension" in program else "it builds none"
    return f"only what kforge.inline builds is instrumented, and nothing here is: {how}"


def _last_line(log: str) -> str:
    """Return the last line of a log as an addition to a reason; empty if the log is empty."""
    last = next((line for line in reversed(log.splitlines()) if line.strip(" =")), "").strip(" =")
    return f" (it said: {last[:200]})" if last else ""


def _why(error: Fault | EvaluationError) -> str:
    log = getattr(error.verdict, "log", "") if isinstance(error, Fault) else ""
    return next(iter(reversed(log.strip().splitlines())), "") or str(error)
