"""The orchestrator's side of an evaluation: starts a referee and sends it requests.

This process does not import torch, runs no foreign code, and trusts only its own referee.
"""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from kforge import errors
from kforge.errors import ChannelError, EvaluationError, InputError
from kforge.evaluation.constants import BUILD_DEADLINE, COMPILE_DEADLINE
from kforge.evaluation.processes import launch, work_folders
from kforge.evaluation.quarantine import is_quarantined, replicate
from kforge.evaluation.referee import warm
from kforge.evaluation.referee.fork_server import RefereeForkServers
from kforge.evaluation.requests import BuildRequest, CandidateRequest, DeviceName, Fitness, HeadToHeadRequest
from kforge.evaluation.sandbox import LADDER, UNSAFE
from kforge.evaluation.sandbox.border import private_folders
from kforge.evaluation.stages import WORDS
from kforge.evaluation.static_check import scan
from kforge.evaluation.transport.channel import SideDied, SideTimedOut
from kforge.evaluation.transport.options import RefereeSetup
from kforge.evaluation.transport.wire import Document
from kforge.platforms import host
from kforge.records import (
    Candidate,
    DeviceFacts,
    Evaluation,
    EvaluationLimits,
    EvaluationPolicy,
    HeadToHead,
    NotSanitized,
    Peaks,
    Problem,
    Profile,
    Receipt,
    Record,
    Sanitization,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.platforms import Platform

SILENCE = BUILD_DEADLINE + COMPILE_DEADLINE
"""Seconds without a message after which a referee counts as hung. A working referee sends a message at every stage."""

_FORK_SERVERS = RefereeForkServers()
"""Fork servers of referees. All judges of this process share them."""

Reply = TypeVar("Reply", bound=Record)


class Judge:
    """Evaluates candidates on one platform. One referee process serves all requests, because starting it takes seconds.

    Methods raise InputError if the problem cannot be judged, or if no sandbox works and `policy.unsafe` is false. They
    raise EvaluationError if the evaluator itself fails.
    """

    def __init__(
        self,
        platform: Platform,
        policy: EvaluationPolicy | None = None,
        *,
        cache: Path,
        environment: Mapping[str, str],
        limits: EvaluationLimits | None = None,
        ladder: Sequence[str] = LADDER,
        private: Sequence[Path] = (),
        on_stage: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Store the settings; the referee starts with the first request, or with `warm`.

        `cache` is the folder for measurements and builds. `environment` is the user's environment: the referee gets all
        of it, workers only the variables that the platform names. `ladder` lists the sandbox layers that may be used,
        best first. `private` are more files and folders that no candidate may read. `on_stage` is called with each
        progress message.
        """
        self.platform = platform
        self.policy = policy = policy or EvaluationPolicy()
        limits = limits or EvaluationLimits()
        self.on_stage = on_stage
        self._environment = environment
        work_folders.must_be_text(cache.absolute(), "XDG_CACHE_HOME")
        self._work = work_folders.make()
        self._sessions = 0
        self._referee: launch.Process | None = None
        self._setup = RefereeSetup(
            platform_folder=str(platform.folder),
            cache=str(cache.absolute()),
            work=str(self._work),
            tool_path=environment.get("PATH", os.defpath),
            # as JSON, which keeps names that are not UTF-8
            private=json.dumps([str(folder.absolute()) for folder in (*private_folders(), cache, *private)]),
            threads=host.threads(),
            precision=policy.precision,
            track=policy.track,
            compile_baseline=policy.compile_baseline,
            compile_mode=policy.compile_mode,
            call_deadline=limits.call_deadline,
            timing_seconds=limits.timing_seconds,
            timing_cap=limits.longest_timing,
            memory=limits.memory,
            worker_environment={
                **{name: environment[name] for name in platform.manifest.inherits if name in environment},
                **platform.adapter.environment(),
            },
            device_nodes=platform.adapter.device_nodes(),
            ladder=(*ladder, UNSAFE) if policy.unsafe else tuple(ladder),
        )

    def describe(self, problem: Problem) -> Workload:
        """Run the reference once, and return a description of its inputs and outputs."""
        return self._ask("describe", problem, Workload)

    def evaluate(self, problem: Problem, candidate: Candidate, *, is_original: bool = False) -> Evaluation:
        """Return the verdict on a candidate, with its receipt. A very large speedup is measured again first
        (`quarantine.py`).

        With `is_original`, the candidate is the problem's own module, and little time is spent on its speed.
        """
        verdict = scan(candidate.source)
        if verdict is None:
            evaluation = self.repeat(problem, candidate, is_original=is_original)
            again = partial(self.repeat, problem, candidate)
            return replicate(evaluation, again) if is_quarantined(evaluation) else evaluation
        receipt = Receipt(
            problem=problem.digest,
            candidate=candidate.digest,
            platform=candidate.platform,
            precision=self.policy.precision,
            track=self.policy.track,
            seed="none: the program was not run",
            device="none",
            versions={},
            sandbox="none: the program was not run",
            timer="none",
        )
        return Evaluation(verdict=verdict, receipt=receipt)

    def repeat(self, problem: Problem, candidate: Candidate, *, is_original: bool = False) -> Evaluation:
        """Evaluate a program once, in fresh workers with a new secret seed.

        There is no static check, so the program must have passed it before. A large speedup is not measured again.
        """
        case = CandidateRequest(problem=problem, candidate=candidate, is_original=is_original)
        return self._ask("evaluate", case, Evaluation)

    def head_to_head(self, problem: Problem, challenger: Candidate, rival: Candidate) -> HeadToHead:
        """Return which of two programs is faster, timed against each other. `evaluate` must have found both correct."""
        case = HeadToHeadRequest(problem=problem, challenger=challenger, rival=rival)
        return self._ask("head to head", case, HeadToHead)

    def build(self, problem: Problem, candidate: Candidate | None) -> None:
        """Compile the candidate and the baseline of the problem in advance, so that a later evaluation finds them in
        the cache.

        Nothing is judged or timed. Without a candidate, or with one that the static check refuses, only the baseline is
        built.
        """
        runs = candidate is not None and scan(candidate.source) is None
        self._ask("build", BuildRequest(problem=problem, candidate=candidate if runs else None), Workload)

    def sanitize(self, problem: Problem, candidate: Candidate) -> Sanitization:
        """Run a program under the platform's sanitizers, and return what they found. Speed is not judged."""
        verdict = scan(candidate.source)
        if verdict is not None:
            return Sanitization(outcome=NotSanitized(reason=f"the program was not run: {verdict.reason}"))
        return self._ask("sanitize", CandidateRequest(problem=problem, candidate=candidate), Sanitization)

    def profile(
        self, problem: Problem, candidate: Candidate, seconds: float | None = None, *, counters: bool = True
    ) -> Profile:
        """Return a profile of a program: where its time goes.

        `seconds` is the duration of one call from an earlier timing; if it is None, a call is timed again. With
        `counters` false, only torch's profiler is used, and not the platform's own profilers.
        """
        case = CandidateRequest(problem=problem, candidate=candidate, seconds=seconds, counters=counters)
        return self._ask("profile", case, Profile)

    def peaks(self, *, fresh: bool = False) -> Peaks:
        """Return the peak bandwidth and peak arithmetic rates of the device. They come from the cache unless `fresh` is
        true."""
        return self._ask("fresh peaks" if fresh else "peaks", None, Peaks)

    def facts(self) -> DeviceFacts:
        """Return facts for authors of programs: what the device reports about itself, and its measured rates."""
        return self._ask("facts", None, DeviceFacts)

    def device(self) -> str:
        """Return the name of the device that programs run on, as receipts give it."""
        return self._ask("device", None, DeviceName).name

    def freshen(self) -> None:
        """End the referee if earlier problems have changed the state of torch in it. Call this before the next
        problem."""
        with suppress(EvaluationError):  # the referee has failed: the next request starts another one
            if self._referee is not None and not self._ask("fitness", None, Fitness).fit:
                self._discard(self._referee)

    def warm(self) -> None:
        """Start the referee now, so that it loads while the caller does something else."""
        self._started()

    def share(self, ready: Callable[[], None]) -> NoReturn:
        """Serve as a fork server of referees for other kforge processes of this user (`kforge warm`), until
        interrupted.

        Calls `ready` as soon as clients can connect. Raises InputError if another process already serves, or if this
        machine cannot.
        """
        warm.share(Path(self._setup.cache), self._begins_with(), ready)

    def interrupt(self) -> None:
        """Abort the request that another thread is waiting for. That thread gets EvaluationError."""
        if (referee := self._referee) is not None:
            referee.interrupt()

    def close(self) -> None:
        """End the referee and remove the work folder."""
        if self._referee is not None:
            self._discard(self._referee)
        work_folders.remove(self._work)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> launch.Process:
        """Return the running referee; start one if no referee runs."""
        if self._referee is None:
            self.on_stage(WORDS["evaluator"])
            self._sessions += 1
            work = self._work / f"session-{self._sessions}"
            cache = Path(self._setup.cache)
            self._referee = _FORK_SERVERS.referee(work / "referee", self._begins_with(), work_folders.make, cache)
            self._referee.channel.send(dataclasses.replace(self._setup, work=str(work)))
            self._referee.channel.send(Document("environment", json.dumps(dict(self._environment))))
        return self._referee

    def _begins_with(self) -> dict[str, str]:
        """Return the environment variables that a new referee starts with: those of workers, with nothing secret."""
        setup = self._setup
        return launch.common_environment(
            tool_path=setup.tool_path, threads=setup.threads, extra=setup.worker_environment
        )

    def _ask(self, topic: str, body: Record | None, reply: type[Reply]) -> Reply:
        """Send a request, report progress messages, and return the answer.

        Raises the InputError that the referee reports. Raises EvaluationError if the referee fails, dies or is silent.
        """
        referee = self._started()
        try:
            referee.channel.send(Document(topic, body.to_json() if body else ""))
            while True:
                answer = referee.channel.receive(SILENCE)
                assert isinstance(answer, Document)
                if answer.topic != "stage":
                    break
                self.on_stage(answer.body)
        except (SideDied, SideTimedOut, ChannelError) as error:
            raise self._lost(referee, error) from None
        match answer.topic:
            case "response":
                return reply.from_json(answer.body)
            case "input_error":
                kind, message = json.loads(answer.body)
                raise getattr(errors, kind, InputError)(message)
        self._discard(referee)
        raise EvaluationError(answer.body)

    def _lost(self, referee: launch.Process, error: Exception) -> EvaluationError:
        """Discard a referee that died or was silent. Returns an error with the cause and the last line of its log."""
        silent = isinstance(error, SideTimedOut)
        cause = f"was silent for {SILENCE:g} s" if silent else referee.cause_of_death()
        last = next(iter(reversed(referee.last_words().strip().splitlines())), "")
        self._discard(referee)
        return EvaluationError(f"the referee {cause}{': ' + last if last else ''}")

    def _discard(self, referee: launch.Process) -> None:
        """Kill a referee. The next request starts a fresh one."""
        referee.kill()
        self._referee = None
