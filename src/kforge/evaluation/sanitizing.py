"""A correct program once more, under its platform's sanitizer: a fresh worker, a few cases, and what was found. (torch)

Covered: what the sanitizer sees in the parts that `kforge.inline` built for it, and outputs that are grossly wrong
with other memory around and under them. Not covered: a program that takes care not to be instrumented. That is no gap
in the judgement: a finding is help for whoever wrote the program in good faith, and the border holds without it.
"""

from __future__ import annotations

import ast
import re
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError
from kforge.evaluation.constants import SANITIZED_DISTRIBUTIONS, SANITIZED_PRECISION, SANITIZED_SECONDS
from kforge.evaluation.contestant import Contestant, Fault
from kforge.evaluation.correctness import CorrectnessCheck
from kforge.evaluation.scan import ENTRY
from kforge.platforms import NoSanitizer
from kforge.records import (
    CompilationFailure,
    Mismatch,
    NotSanitized,
    RuntimeFailure,
    Sanitization,
    SanitizedClean,
    SanitizerFinding,
)

if TYPE_CHECKING:
    from kforge.evaluation.bench import Bench
    from kforge.platforms import Sanitizer
    from kforge.problems.instance import Instance
    from kforge.records import Candidate

    Outcome = SanitizedClean | SanitizerFinding | NotSanitized

FOLDER = "sanitized"
"""Where a program's builds for a sanitizer are kept, beside its plain ones."""


class SanitizedTrial:
    """One candidate on one problem, under the sanitizer."""

    def __init__(self, bench: Bench, instance: Instance, candidate: Candidate) -> None:
        self.bench = bench
        self.instance = instance
        self.candidate = candidate

    def run(self) -> Sanitization:
        """Whatever happens inside is an outcome. Raises ProblemError for the reference's own faults."""
        start = time.monotonic()
        sanitizer = self.bench.adapter.sanitizer()
        outcome = NotSanitized(reason=sanitizer.reason) if isinstance(sanitizer, NoSanitizer) else self._try(sanitizer)
        return Sanitization(outcome=outcome, seconds=round(time.monotonic() - start, 3))

    def _try(self, sanitizer: Sanitizer) -> Outcome:
        try:
            contestant = self.bench.contestant(self.candidate.digest, under=sanitizer)
        except (Fault, EvaluationError) as error:
            return NotSanitized(reason=f"no worker starts under {sanitizer.name}: {_why(error)}")
        try:
            return self._judge(contestant, sanitizer)
        except Fault as fault:
            return self._outcome(fault, sanitizer)
        finally:
            contestant.close()

    def _judge(self, contestant: Contestant, sanitizer: Sanitizer) -> Outcome:
        contestant.sanitize(sanitizer, self.bench.builds(self.candidate.digest) / FOLDER)
        if sanitizer.runtime and sanitizer.runtime not in _mapped(contestant.pid):
            return NotSanitized(reason=f"{sanitizer.runtime} cannot be loaded inside the sandbox")
        contestant.load(self.candidate.source, "candidate.py", ENTRY)
        secret = secrets.token_hex(16)
        check = CorrectnessCheck(self.instance, contestant, secret=secret, precision=SANITIZED_PRECISION)
        cases = check.sample(SANITIZED_DISTRIBUTIONS, SANITIZED_SECONDS)
        if sanitizer.evidence and sanitizer.evidence not in _mapped(contestant.pid):
            return NotSanitized(reason=_nothing_instrumented(self.candidate.source))
        return SanitizedClean(sanitizer=sanitizer.name, cases=cases)

    def _outcome(self, fault: Fault, sanitizer: Sanitizer) -> Outcome:
        match fault.verdict:
            case CompilationFailure(reason=reason):
                return NotSanitized(reason=f"it does not build with {sanitizer.name}: {reason}")
            case RuntimeFailure(fault="timed_out", reason=reason):
                return NotSanitized(reason=f"too slow under {sanitizer.name}: {reason}")
            case RuntimeFailure(fault="died") as died:
                return self._death(died, sanitizer)
            case Mismatch() as wrong:
                reason = f"with {sanitizer.name}, where memory that was never written holds NaN: {wrong.reason}"
                return SanitizerFinding(sanitizer=sanitizer.name, failure=wrong.model_copy(update={"reason": reason}))
            case other:
                return SanitizerFinding(sanitizer=sanitizer.name, failure=other)

    def _death(self, died: RuntimeFailure, sanitizer: Sanitizer) -> Outcome:
        report = sanitizer.read(died.log)
        exhausted = "SIGKILL" in died.reason if report is None else report.exhausted
        if exhausted:  # the kernel ends workers first when memory runs out, and a sanitizer needs much of it
            return NotSanitized(reason=f"{died.reason} under {sanitizer.name}: most likely memory ran out")
        if report is None:
            return SanitizerFinding(sanitizer=sanitizer.name, failure=died)
        log = "\n".join([report.log, *quoted(self.candidate.source, report.log)])
        return SanitizerFinding(
            sanitizer=sanitizer.name, failure=RuntimeFailure(fault="died", reason=report.reason, log=log)
        )


def quoted(program: str, log: str) -> list[str]:
    """The lines of the kernel that a report names, where the program holds its kernel as one plain string.

    A program may hold several; the ones that contain the function are meant, if that is only one.
    """
    texts = [node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)]
    lines = []
    for function, place, number in dict.fromkeys(_FRAME.findall(log)):
        name = function.partition("(")[0].rpartition("::")[2]
        kernels = [text.splitlines() for text in texts if isinstance(text, str) and "\n" in text and name in text]
        if len(kernels) == 1 and int(number) <= len(kernels[0]):
            lines.append(f"{place}:{number}: {kernels[0][int(number) - 1].strip()}")
    return list(dict.fromkeys(lines))


_FRAME = re.compile(r"^    in (.+) at (\S+):(\d{1,6})$", re.MULTILINE)


def _mapped(pid: int) -> set[str]:
    """The files that a process has mapped, its libraries among them: by the kernel's word and not the worker's."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line.split(maxsplit=5)[5] for line in lines if line.count("/")}


def _nothing_instrumented(program: str) -> str:
    how = "it builds through torch.utils.cpp_extension" if "cpp_extension" in program else "it builds none"
    return f"only what kforge.inline builds is instrumented, and nothing here is: {how}"


def _why(error: Fault | EvaluationError) -> str:
    log = getattr(error.verdict, "log", "") if isinstance(error, Fault) else ""
    return next(iter(reversed(log.strip().splitlines())), "") or str(error)
