"""Sends orders to one worker and receives its answers: enforces deadlines, times the orders, refuses malformed answers.

A worker and its descendants run only between an order and its answer; at all other times they are stopped. The clock of
a timed order runs until all of them are stopped. So a program gains nothing by working on after its answer, in a
thread, a process or a system call.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kforge.errors import ChannelError, EvaluationError
from kforge.evaluation.constants import BUSY_LOOKS, CALL_DEADLINES, START_DEADLINE
from kforge.evaluation.processes.machine_load import Helpers, critical_seconds, own_seconds, seconds_by_thread
from kforge.evaluation.transport import wire
from kforge.evaluation.transport.channel import SideDied, SideTimedOut
from kforge.evaluation.worker_client.failures import as_verdict
from kforge.evaluation.worker_client.output_access import NotShownError
from kforge.evaluation.worker_client.profile_rows import rows_of
from kforge.platforms import host
from kforge.records import CompilationFailure, Mismatch, Rejected, RuntimeFailure

if TYPE_CHECKING:
    from kforge.evaluation.processes.launch import Process
    from kforge.evaluation.transport.shared_memory import SharedRegion
    from kforge.evaluation.worker_client.code_ownership import CodeSampler
    from kforge.evaluation.worker_client.output_access import OutputAccess
    from kforge.evaluation.worker_client.profile_rows import Row

    Failure = CompilationFailure | RuntimeFailure | Mismatch | Rejected

Answer = TypeVar("Answer", bound=wire.WireMessage)


class Fault(Exception):
    """The program failed. `verdict` says how."""

    def __init__(self, verdict: Failure) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict

    @property
    def has_raised(self) -> bool:
        """Whether the program failed by raising an exception."""
        return isinstance(self.verdict, RuntimeFailure) and self.verdict.fault == "raised"


class BaselineFailedError(EvaluationError):
    """The reference, plain or compiled, raised an exception in its worker."""


class Took(NamedTuple):
    """The times of one timed order (`wire.Go`), by the referee's clock and by the worker's."""

    seconds: float
    """Seconds by the referee's clock, until the worker was stopped and its device idle."""
    holding: float = 0.0
    """The part of `seconds` between the answer and the moment when all processes of the worker were stopped."""
    claimed: float = 0.0
    """Seconds by the worker's own clock or its device's, as the worker reports them."""
    around: float = 0.0
    """Seconds of the worker's own code around the calls of the previous timed order, as the worker reports them."""
    critical: float = 0.0
    """Processor seconds of the worker's busiest thread (`critical_seconds`), which other processes do not lengthen."""
    total: float = 0.0
    """Processor seconds of all the worker's threads."""


class Orders:
    """Exchanges orders and answers with one worker, and adds up the time that the worker uses.

    Methods raise Fault if the program fails, and EvaluationError if the program is trusted (a baseline).
    """

    def __init__(self, process: Process, access: OutputAccess, *, trusted: bool) -> None:
        self._process = process
        self._channel = process.channel
        self._access = access
        self._trusted = trusted
        self.took = Took(0.0)
        """The times of the last timed order."""
        self.late_blocks = 0
        """Number of timed orders after which the device still worked when everything on the host was stopped."""
        self.spent = 0.0
        """Total seconds of all orders."""
        self._calling = 0.0
        """Total seconds of all single calls, which are checked but not timed."""
        self.worked = 0.0
        """Processor seconds of the worker process in timed orders."""
        self.helped = 0.0
        """Processor seconds of the worker's living descendants in timed orders."""
        self.helped_outside = 0.0
        """Processor seconds of all the worker's descendants outside timed orders: an upper bound."""
        self.has_helpers = False
        """Whether the worker had descendants after any timed order, or some ended in one."""
        self._last: Helpers | None = None
        """Processor time of the worker's descendants at the end of the last timed order."""

    def attach(self, name: str, region: SharedRegion) -> int:
        """Give the worker a region of shared memory. Returns the address at which the worker says it has mapped it."""
        # the program may run by now (inputs come after it was loaded), so what goes wrong here is its fault as well
        descriptors = () if region.handle else (region.descriptor,)
        order = wire.Attach(name, region.size, region.handle)
        return self.order(order, wire.Attached, START_DEADLINE, descriptors=descriptors).address

    def must_be_quiet(self, when: str) -> None:
        """Raise Fault if the program works on its device without an order. `when` ends the sentence of the reason.

        Raises EvaluationError if the device is still busy after the worker was killed: then another process works
        there.
        """
        # a baseline does not work without an order: if it seems to, the machine is slow for a moment
        if any(self._access.is_quiet() for _ in range(BUSY_LOOKS if self._trusted else 1)):
            return
        self._process.kill()
        if self._access.stays_busy():
            raise EvaluationError(
                "another process uses the device, so programs cannot be timed now; end that process, or try again later"
            )
        raise self.failure(Rejected(rule="unbidden_work", reason=f"the program worked on the device {when}"))

    def rows(self, rows: Any, most: int, longest: int) -> list[Row]:
        """Return the rows of a profile from the worker. Raises Fault if they are malformed."""
        try:
            return rows_of(rows, most, longest)
        except (TypeError, ValueError):
            raise self.violation("its profile is not a list of rows") from None

    def begin(self, order: wire.WireMessage) -> None:
        """Continue the worker and send an order without waiting for the answer."""
        self._process.release()
        with suppress(SideDied):  # the next order reports it
            self._channel.send(order)

    def order(
        self,
        order: wire.WireMessage,
        expected: type[Answer],
        deadline: float,
        *,
        descriptors: tuple[int, ...] = (),
        settle: float = 0.0,
        watch: CodeSampler | None = None,
        sent: bool = False,
        brief: bool = False,
    ) -> Answer:
        """Send an order and return its answer, which must have the type `expected`.

        `descriptors` are sent with the order. The worker may go on for `settle` seconds after the answer before it is
        stopped. `watch` samples whose code runs meanwhile. `sent`: the order was already sent by `begin`. `brief`: the
        device counts as idle when it was seen idle once.
        """
        begin = time.monotonic()
        try:
            answer = self._exchange(
                order, deadline, descriptors=descriptors, settle=settle, watch=watch, sent=sent, brief=brief
            )
        except SideTimedOut:
            self._process.kill()
            reason = f"no answer to {type(order).__name__.lower()} within {deadline:g} s"
            raise self.failure(RuntimeFailure(fault="timed_out", reason=reason)) from None
        except SideDied:
            raise self.death() from None
        except ChannelError as error:
            raise self.violation(str(error)) from None
        took = time.monotonic() - begin
        self.spent += took
        if isinstance(order, wire.Call):
            self._calling += took
            self._must_end_in_time(CALL_DEADLINES * deadline)
        if isinstance(answer, wire.Failed):
            raise self.failure(as_verdict(answer))
        if not isinstance(answer, expected):
            raise self.violation(f"it answered {type(order).__name__} with {type(answer).__name__}")
        return answer

    def _must_end_in_time(self, most: float) -> None:
        """Raise Fault if all single calls of a program together have taken more than `most` seconds."""
        if self._calling > most and not self._trusted:
            self._process.kill()
            reason = f"all calls that are checked together took more than {most:g} s"
            raise self.failure(RuntimeFailure(fault="timed_out", reason=reason))

    def failure(self, verdict: Failure) -> Fault | EvaluationError:
        """Return the exception for a verdict: Fault, or EvaluationError for a trusted program."""
        if not self._trusted:
            return Fault(verdict)
        raised = isinstance(verdict, RuntimeFailure) and verdict.fault == "raised"
        return (BaselineFailedError if raised else EvaluationError)(f"a baseline failed: {verdict.reason}")

    def death(self) -> Fault | EvaluationError:
        """Kill the worker and return the exception for a worker that died, with its log."""
        reason, log = f"the process {self._process.cause_of_death()}", self._process.last_words()
        self._process.kill()
        return self.failure(RuntimeFailure(fault="died", reason=reason, log=log))

    def violation(self, what: str) -> Fault | EvaluationError:
        """Kill the worker and return the exception for an answer that breaks the format."""
        self._process.kill()
        return self.failure(Rejected(rule="channel", reason=f"the result channel's format is broken: {what}"))

    def unreadable(self, error: ChannelError) -> Fault | EvaluationError:
        """Return the exception for a worker whose memory cannot be read."""
        if self._process.has_ended():  # it was killed while it was stopped: its answer was not false
            return self.death()
        if isinstance(error, NotShownError):
            return self.failure(Rejected(rule="output_not_shared", reason=str(error)))
        return self.violation(str(error))

    def _exchange(
        self,
        order: wire.WireMessage,
        deadline: float,
        *,
        descriptors: tuple[int, ...],
        settle: float,
        watch: CodeSampler | None,
        sent: bool,
        brief: bool,
    ) -> wire.WireMessage:
        """Continue the worker, send the order, wait for the answer, and stop the worker. A `Go` order is timed."""
        if not sent and self._channel.has_unread():
            raise ChannelError("it sent a message without an order")
        # only in timed orders: threads that start in other orders must not inherit a single processor
        timed = isinstance(order, wire.Go)
        spread = self._process.spread(aside=self._access.spins) if timed else None
        self._access.settle()
        before = self._worked() if timed else None
        threads = seconds_by_thread(self._process.pid) if timed else {}
        start = time.perf_counter_ns()
        if timed:
            # before anything runs: a thread that sees the inputs must not be ahead of the one that waits for the order
            self._channel.send(order)
        self._process.release()
        if watch is not None:
            watch.begin()
        if not timed and not sent:
            self._channel.send(order, descriptors=descriptors)
        if spread is not None:
            spread.begin()
        answer = self._channel.receive(deadline, awake=timed and self._access.spins)
        if watch is not None:
            watch.close()
        time.sleep(settle)
        answered = time.perf_counter_ns()
        self._hold()
        held = time.perf_counter_ns()
        if spread is not None:
            spread.end()
        if before is not None:
            end = self._access.finish(deadline, brief=brief)
            self.late_blocks += end.late
            claimed, around = (answer.nanoseconds, answer.around) if isinstance(answer, wire.Done) else (0, 0)
            worked = self._account(before, (held - start) / 1e9)
            self.took = Took(
                (end.nanoseconds - start) / 1e9,
                (held - answered) / 1e9,
                claimed / 1e9,
                min(max(0, around), held - start) / 1e9,  # a program may answer in the worker's place
                critical_seconds(threads, seconds_by_thread(self._process.pid), worked),
                worked,
            )
        return answer

    def _worked(self) -> tuple[float | None, Helpers]:
        """Return the processor seconds so far, of the worker process and of its descendants.

        Descendants of a trusted program are not counted, because it starts none.
        """
        helpers = Helpers({}, 0.0) if self._trusted else Helpers.take(self._process.pid)
        return own_seconds(self._process.pid), helpers

    def _account(self, before: tuple[float | None, Helpers], seconds: float) -> float:
        """Add the processor time of a timed order to the totals. Returns the processor seconds of the worker process.

        `before` is the result of `_worked` before the order. `seconds` is the duration of the order.
        """
        (own, helpers), (now, helped) = before, self._worked()
        worked = now - own if own is not None and now is not None else seconds * host.threads()
        self.worked += worked
        self.helped += helped.of_living(helpers)
        self.helped_outside += 0.0 if self._last is None else helpers.of_all(self._last)
        self.has_helpers |= bool(self._process.helpers) or helped.ended > helpers.ended
        self._last = helped
        return worked

    def _hold(self) -> None:
        try:
            self._process.hold()
        except TimeoutError as error:
            raise ChannelError(str(error)) from None
