"""Judges programs that clients send: one at a time, each within a time limit.

A client names a problem and sends the source of a program. It cannot send an option or a path: problems run with the
rights of the user who started the server, and programs run in the sandbox. A reference that a client sends runs with no
such rights, in a cell (`foreign/`).
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from kforge.agents import AnalysisAgent, Briefing, GenerationAgent, MeasuredFacts
from kforge.agents.unasked import Unasked, as_text, question
from kforge.errors import EvaluationError, InputError, NothingLeft, ServiceBusy, TookTooLong
from kforge.loop import measured_facts
from kforge.models import open_model
from kforge.problems import open_suite
from kforge.records import Candidate, EvaluationPolicy
from kforge.service.foreign.references import ForeignReferences
from kforge.session import open_judge, usable_platform
from kforge.smith import NAME as BUILTIN
from kforge.store.carried import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kforge.evaluation import Judge
    from kforge.records import Evaluation, Problem, Profile, Recommendation, Sanitization, Workload
    from kforge.settings import Settings

LARGEST_SOURCE = 2**20
"""Most bytes of a program."""
INTERRUPTED_EVERY = 0.5
"""Seconds between two attempts to end a request that takes too long."""
MOST_KEPT = 32
"""Number of latest results that a server remembers."""
Made = TypeVar("Made")


@dataclass(frozen=True)
class ServiceOptions:
    """The settings of a server, which hold for all its clients."""

    problems: tuple[str, ...] = ("core",)
    """Folders of problems, or names of suites that come with kforge."""
    platform: str = ""
    platform_dirs: tuple[Path, ...] = ()
    policy: EvaluationPolicy = field(default_factory=EvaluationPolicy)
    analyst: str = BUILTIN
    """The model of the performance analysis agent."""
    seconds: float = 300.0
    """The time limit of one request, with the time that it waits for its turn."""
    waiting: int = 8
    """Most requests that may wait while another one is worked on."""


class EvaluationService:
    """The problems of a server, and the judge that works on one request at a time. Close it when the server ends.

    Methods raise InputError for a bad request, and EvaluationError where the evaluator fails or takes too long.
    """

    def __init__(self, options: ServiceOptions, settings: Settings, private: Sequence[Path] = ()) -> None:
        """`private`: paths that no program may see. Raises InputError for unusable problems or an unusable platform."""
        self.options = options
        self.settings = settings
        self._private = tuple(private)
        self.problems = _load(options.problems)
        self.platform = usable_platform(options.platform, settings, options.platform_dirs)
        self._judge: Judge | None = None
        self._foreign = ForeignReferences(self.platform, options.policy, settings, self._private)
        self._last: Problem | None = None
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(options.waiting + 1)
        self._counted = threading.Lock()
        self._requests = 0
        self._workloads: dict[str, Workload] = {}
        self._judged: Latest[Evaluation] = Latest()
        self._profiles: Latest[Profile] = Latest()
        self._measured: dict[str, MeasuredFacts] = {}

    def problem(self, name: str) -> Problem:
        """Return the problem of this name. Raises InputError if the server has no such problem."""
        if name not in self.problems:
            raise InputError(f"there is no problem {shown(name)} among the server's {len(self.problems)} problems")
        return self.problems[name]

    def candidate(self, source: str) -> Candidate:
        """Return a client's program. Raises InputError for one that is empty, too large or not text."""
        try:
            size = len(source.encode())
        except UnicodeEncodeError:
            said = "the source contains a lone surrogate (half of a UTF-16 pair), which is not text; remove it"
            raise InputError(said) from None
        if not source.strip():
            raise InputError("the source is empty")
        if size > LARGEST_SOURCE:
            raise InputError(f"the source has {size} bytes; at most {LARGEST_SOURCE} are read")
        return Candidate(source=source.replace("\r\n", "\n").replace("\r", "\n"), platform=self.platform.name)

    def evaluate(self, name: str, source: str) -> Evaluation:
        """Return the verdict on a program, as `kforge eval` does."""
        problem, candidate = self.problem(name), self.candidate(source)
        made = self._within_limits(problem, lambda judge: judge.evaluate(problem, candidate))
        self._judged.put((problem.digest, candidate.digest), made)
        return made

    def evaluate_foreign(self, problem: Problem, source: str) -> Evaluation:
        """Return the verdict on a program for a reference that a client sent, which runs in a cell of its own."""
        began, candidate = time.monotonic(), self.candidate(source)
        with self._place(), self._turn_within(self.options.seconds):
            left = self.options.seconds - (time.monotonic() - began)
            return self._foreign.evaluate(problem, candidate, max(left, 0.0))

    def known(self, source: str) -> str | None:
        """Return the name of the server's problem with this source; None if no problem of the server has it."""
        return next((name for name, problem in self.problems.items() if problem.source == source), None)

    @property
    def requests(self) -> int:
        """Number of requests that are worked on or wait now."""
        with self._counted:
            return self._requests

    def evaluate_and_sanitize(self, name: str, source: str) -> tuple[Evaluation, Sanitization | None]:
        """Return the verdict, and for a correct program what the platform's sanitizers find."""
        problem, candidate = self.problem(name), self.candidate(source)

        def work(judge: Judge) -> tuple[Evaluation, Sanitization | None]:
            evaluation = judge.evaluate(problem, candidate)
            return evaluation, judge.sanitize(problem, candidate) if evaluation.correct is not None else None

        return self._within_limits(problem, work)

    def profile(self, name: str, source: str) -> Profile:
        """Return where a program's time goes, as `kforge profile` does. Raises InputError if the program is not
        correct."""
        problem, candidate = self.problem(name), self.candidate(source)
        key = problem.digest, candidate.digest
        if (known := self._profiles.get(key)) is not None:
            return known
        evaluation = self._judged.get(key) or self.evaluate(name, source)
        if evaluation.correct is None:
            state = evaluation.verdict.state.replace("_", " ")
            raise InputError(f"only a correct program can be profiled; this one is: {state}")
        timing = evaluation.correct.timing
        seconds = timing.seconds.median if timing is not None else 0.0
        made = self._within_limits(problem, lambda judge: judge.profile(problem, candidate, seconds))
        self._profiles.put(key, made)
        return made

    def task_prompt(self, name: str) -> str:
        """Return the generation agent's first prompt for a problem."""
        problem = self.problem(name)
        workload = self.workload(name)
        agent = GenerationAgent(Unasked(), self.platform, briefing=self._briefing(problem))
        return as_text(question(lambda: agent.write(problem, workload)))

    def recommend(self, name: str, source: str) -> Recommendation | str:
        """Return the analyst's recommendation for a correct program.

        The built-in analyst knows only programs of the built-in generator. For any other one this returns the prompt of
        the performance analysis agent, which the client can answer itself. Raises NothingLeft if a model sees no change
        that is worth trying.
        """
        problem, candidate = self.problem(name), self.candidate(source)
        workload, profile = self.workload(name), self.profile(name, source)
        if self.options.analyst != BUILTIN:
            model = open_model(self.options.analyst, exchange=self.exchange, keys=self.settings.keys)
            agent = AnalysisAgent(model, self.platform, briefing=self._briefing(problem))
            return agent.recommend(problem, workload, candidate, profile).recommendation
        from kforge.smith.brain import Smith  # imports torch, which nothing else here does

        try:
            return Smith(self.platform).recommend(problem, workload, candidate, profile).recommendation
        except NothingLeft:
            agent = AnalysisAgent(Unasked(), self.platform, briefing=self._briefing(problem))
            return as_text(question(lambda: agent.recommend(problem, workload, candidate, profile)))

    def _briefing(self, problem: Problem) -> Briefing:
        """Return what agents are told about the device and PyTorch itself, measured once for each problem."""
        if problem.digest not in self._measured:
            found = self._within_limits(problem, lambda judge: measured_facts(judge, problem))
            self._measured[problem.digest] = found
        return Briefing(policy=self.options.policy, measured=self._measured[problem.digest])

    @property
    def exchange(self) -> Path:
        """The folder of the analyst's requests and replies, which belong to no run."""
        return self.settings.state / "service-exchange"

    def workload(self, name: str) -> Workload:
        """Return the facts about one call of a problem, measured once."""
        problem = self.problem(name)
        if name not in self._workloads:
            self._workloads[name] = self._within_limits(problem, lambda judge: judge.describe(problem))
        return self._workloads[name]

    def within_limits(self, name: str, work: Callable[[Judge], Made]) -> Made:
        """Call a function with the judge, alone and within the time limit."""
        return self._within_limits(self.problem(name), work)

    def close(self) -> None:
        with self._turn:
            self._discard()
            self._foreign.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _within_limits(self, problem: Problem, work: Callable[[Judge], Made]) -> Made:
        began, limit = time.monotonic(), self.options.seconds
        with self._place(), self._turn_within(limit):
            judge = self._ready(problem)
            done, late = threading.Event(), threading.Event()

            def watch() -> None:
                if not done.wait(max(limit - (time.monotonic() - began), 0.0)):
                    late.set()
                    judge.interrupt()
                while not done.wait(INTERRUPTED_EVERY):  # again, because the referee may have been starting
                    judge.interrupt()

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            try:
                return work(judge)
            except EvaluationError as error:
                if late.is_set():
                    raise TookTooLong(f"stopped: the request took longer than {limit:g} s") from error
                raise
            finally:
                done.set()
                watcher.join()

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise ServiceBusy(f"busy: {self.options.waiting} requests wait already; try again later")
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._places.release()

    def _count(self, change: int) -> None:
        with self._counted:
            self._requests += change

    @contextmanager
    def _turn_within(self, limit: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=limit):
            raise TookTooLong(f"stopped: other requests took longer than {limit:g} s")
        try:
            yield
        finally:
            self._turn.release()

    def _ready(self, problem: Problem) -> Judge:
        """Return the judge, with a fresh referee where another problem has changed its state."""
        if self._judge is None:
            self._judge = open_judge(self.platform, self.settings, self.options.policy, self._private)
        elif self._last is not problem:
            self._judge.freshen()
        self._last = problem
        return self._judge

    def _discard(self) -> None:
        if self._judge is not None:
            self._judge.close()
            self._judge = None


class Latest(Generic[Made]):
    """The latest results by problem and program, so that `profile` and `recommend` need not judge a program again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Made] = {}

    def get(self, key: tuple[str, str]) -> Made | None:
        return self._kept.get(key)

    def put(self, key: tuple[str, str], made: Made) -> None:
        self._kept.pop(key, None)
        self._kept[key] = made
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]


def _load(names: Sequence[str]) -> dict[str, Problem]:
    """Return the problems of folders and suites by name. Raises InputError for a folder without problems."""
    found: dict[str, Problem] = {}
    for name in names:
        suite = open_suite(name)
        for task in suite.tasks():
            if task.problem is not None:
                # two folders may hold problems of one name
                key = task.name if task.name not in found else f"{suite.name}/{task.name}"
                found[key] = task.problem
    if not found:
        raise InputError(f"no problem can be used in {', '.join(names)}")
    return found
