"""The server's side of cells: one cell at a time, kept as long as requests have the same reference."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kforge.errors import EvaluationError, ProblemError, TookTooLong
from kforge.evaluation.processes import launch, work_folders
from kforge.evaluation.requests import CandidateRequest
from kforge.evaluation.sandbox.border import Border
from kforge.problems.source import missing_names, parse
from kforge.records import Problem
from kforge.service.foreign.cell import CellOrders
from kforge.service.foreign.inside import CellAnswer, CellSetup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kforge.platforms import Platform
    from kforge.records import Candidate, Evaluation, EvaluationPolicy
    from kforge.settings import Settings

LARGEST_ANSWER = 64 * 2**20
"""Most bytes of an answer. An evaluation with its samples has a few kilobytes; foreign code could write without end."""
ORDERS = "orders.json"
LOG = "log"
TOO_LONG = "stopped: the request took too long"
LAST_WORDS = 4096
"""Most bytes that are read at the end of a cell's log, which foreign code can fill."""


def foreign_problem(name: str, source: str) -> Problem:
    """Return a client's reference as a problem, without running it. Raises ProblemError if it defines no problem."""
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    if missing := missing_names(parse(text, "reference_code")):
        raise ProblemError(f"reference_code does not define {' or '.join(missing)} at module level")
    return Problem(name=name, source=text)


class ForeignReferences:
    """Judges programs for foreign references. One thread uses it at a time. Close it when the server ends."""

    def __init__(
        self, platform: Platform, policy: EvaluationPolicy, settings: Settings, private: Sequence[Path]
    ) -> None:
        """`private`: paths that no cell may see, besides the user's own folders."""
        self._platform = platform
        self._policy = policy
        self._settings = settings
        self._private = (*settings.private, *private)
        self._cell: RunningCell | None = None
        self._problem = ""

    def evaluate(self, problem: Problem, candidate: Candidate, seconds: float) -> Evaluation:
        """Return the verdict on a program. Raises ProblemError if the reference cannot be judged, and EvaluationError
        if the evaluator fails, if no cell can be made here, or if it takes longer than `seconds`."""
        end = time.monotonic() + seconds
        try:
            answer = self._opened(problem, end).ask(CandidateRequest(problem=problem, candidate=candidate), end)
        except TookTooLong:
            self.close()
            raise
        except (OSError, EvaluationError) as error:
            why = self._why(str(error))
            self.close()
            raise EvaluationError(why) from error
        if answer.evaluation is None:
            if answer.bad_input is not None:
                raise ProblemError(answer.bad_input)
            raise EvaluationError(answer.failure or "the cell gave no verdict")
        return answer.evaluation

    def close(self) -> None:
        """End the cell with all its processes."""
        if self._cell is not None:
            self._cell.close()
            self._cell = None

    def _opened(self, problem: Problem, end: float) -> RunningCell:
        if self._cell is None or self._problem != problem.digest:
            self.close()
            self._cell = RunningCell(self._platform, self._settings, self._private)
            self._problem = problem.digest
            setup = CellSetup(
                platform=str(self._platform.folder), policy=self._policy, limits=self._settings.limits,
                environment=self._cell.environment,
            )  # fmt: skip
            self._cell.begin(setup, end)
        return self._cell

    def _why(self, error: str) -> str:
        last = self._cell.last_words() if self._cell is not None else ""
        return f"{error}: {last}" if last else error


class RunningCell:
    """One cell and its processes."""

    def __init__(self, platform: Platform, settings: Settings, private: Sequence[Path]) -> None:
        """Start the cell. `private` are paths that its processes must not see. Raises OSError if the cell's folder or
        its process cannot be made."""
        self._folder = work_folders.make()
        inside = self._folder / "work"
        builds = self._folder / "builds"
        for folder in (inside, builds):
            folder.mkdir()
        self.environment = {**settings.child_environment, "HOME": str(inside), "XDG_CACHE_HOME": str(inside)}
        self.environment["TMPDIR"] = str(inside)
        tools = self.environment.get("PATH", os.defpath)
        nodes = platform.adapter.device_nodes()
        border = Border.around(launch.import_path(), tools, (platform.folder,), nodes, private)
        ours, theirs = os.pipe()
        orders = CellOrders(
            readable=border.readable, devices=border.devices, work=str(inside), builds=str(builds),
            command=(sys.executable, "-P", "-m", "kforge.service.foreign.inside"), lifeline=ours,
            environment={**self.environment, "PYTHONPATH": launch.import_path(), "PYTHONUTF8": "1"},
        )  # fmt: skip
        (self._folder / ORDERS).write_text(orders.to_json())
        self._lifeline = theirs
        self._log = self._folder / LOG
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "kforge.service.foreign.cell", str(self._folder / ORDERS)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, pass_fds=(ours,), cwd=self._folder,
                    env={"PYTHONPATH": launch.import_path(), "PATH": tools}, start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(ours)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # foreign code can stop the process that reads

    def begin(self, setup: CellSetup, end: float) -> None:
        """Send the setup. Raises EvaluationError if the cell has died already, or does not read it in time."""
        self._send(setup.to_json(), end)

    def ask(self, request: CandidateRequest, end: float) -> CellAnswer:
        """Return the answer to a request. Raises EvaluationError if the cell dies, sends an invalid answer, or does
        not read the request and answer it before the time `end`, by `time.monotonic`."""
        self._send(request.to_json(), end)
        try:
            return CellAnswer.from_json(self._line(end))
        except (ValueError, ValidationError):
            raise EvaluationError("the cell of the reference sent an invalid answer") from None

    def last_words(self) -> str:
        """Return the last line that the cell wrote to its log."""
        with self._log.open("rb") as log:
            log.seek(-min(LAST_WORDS, log.seek(0, os.SEEK_END)), os.SEEK_END)
            said = log.read(LAST_WORDS).decode(errors="replace").strip().splitlines()
        return said[-1] if said else ""

    def close(self) -> None:
        """End all processes of the cell, and remove its folder."""
        os.close(self._lifeline)
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue
        self._process.wait()
        work_folders.remove(self._folder)

    def _send(self, line: str, end: float) -> None:
        """Write a line. Raises TookTooLong if the cell does not read it before `end`."""
        assert self._process.stdin is not None
        target, left = self._process.stdin.fileno(), memoryview(line.encode() + b"\n")
        while left:
            seconds = end - time.monotonic()
            if seconds <= 0 or not select.select([], [target], [], seconds)[1]:
                raise TookTooLong(TOO_LONG)
            try:
                left = left[os.write(target, left) :]
            except BlockingIOError:  # select reports a pipe as writable that has too little room
                continue
            except BrokenPipeError:
                raise EvaluationError("the cell of the reference has died") from None

    def _line(self, end: float) -> bytes:
        assert self._process.stdout is not None
        source, parts, size = self._process.stdout.fileno(), list[bytes](), 0
        while not (parts and parts[-1].endswith(b"\n")):
            left = end - time.monotonic()
            if left <= 0 or not select.select([source], [], [], left)[0]:
                raise TookTooLong(TOO_LONG)
            part = os.read(source, 1 << 20)
            size += len(part)
            if not part:
                raise EvaluationError("the cell of the reference has died")
            if size > LARGEST_ANSWER:
                raise EvaluationError(f"the cell of the reference sent an answer of more than {LARGEST_ANSWER} bytes")
            parts.append(part)
        return b"".join(parts)
