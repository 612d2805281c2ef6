"""Ten thousand lies from a hostile worker: each ends in a failing verdict, none in a right one or in our own fault.

The worker is a real process at the other end of a real socket (`hostile_worker.py`), and what it talks to is the
referee's own code. What it says is never believed, so nothing here asks it what it did.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from kforge import platforms, problems
from kforge.evaluation.comparison.comparison import Truth, compare, surely_alike
from kforge.evaluation.constants import MAX_FRAME, MAX_LOG
from kforge.evaluation.processes.launch import Process
from kforge.evaluation.timing.kernel_ownership import Seen
from kforge.evaluation.transport import wire
from kforge.evaluation.transport.channel import Channel
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.evaluation.worker_client.code_ownership import CodePosition
from kforge.evaluation.worker_client.output_access import HostAccess, OutputAccess
from kforge.problems.instance import Instance, instantiate
from kforge.problems.tensors import same
from kforge.profiling import digest, roofline
from kforge.profiling.authored import page as authored_page
from kforge.records import HotSpot, Mismatch, Peaks, Span, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_LIES = 20_000
SEED = 20261115
CALL_DEADLINE = 0.02
"""Silence ends a life: some lies are half a frame. On a busy machine an honest answer may be late, too; no matter."""
MEMORY = 2 << 30
"""What the referee's side may need on top of what it has; a lie can ask for a hundred times as much."""

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))

    def forward(self, x):
        return x @ self.weight

def get_inputs():
    return [torch.randn(4, 4)]

def get_init_inputs():
    return [4]
"""
PEAKS = Peaks(device="d", bytes_per_second=1e9, flops_per_second=1e9)


class Refused(Exception):
    """The referee saw that an answer is wrong; the verdict says how."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class Hostile:
    """One process, many lives: each is a worker to those who talk to it."""

    def __init__(self, log: Path) -> None:
        self.control, theirs = socket.socketpair()
        script = Path(__file__).with_name("hostile_worker.py")
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(script), str(theirs.fileno()), str(SEED)],
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a worker leads a session of its own, by which it is held
            )
        self.log = log
        self.lies = 0

    @contextlib.contextmanager
    def life(self) -> Iterator[Process]:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"!"], [theirs.fileno()])
        channel = Channel(ours, max_frame=MAX_FRAME, death=os.pidfd_open(self.process.pid))
        process = Process(self.process.pid, channel, self.log, wait=lambda _: None, end=self._go_on)
        try:
            yield process
        finally:
            self._go_on(0.0)
            channel.close()
            told = self.control.recv(4, socket.MSG_WAITALL)
            assert len(told) == 4, "the hostile process ended: the test is over, and shows nothing"
            (self.lies,) = struct.unpack("!I", told)

    def _go_on(self, _: float) -> None:
        """What is killed in earnest would be gone; this one only lives its next life."""
        os.killpg(self.process.pid, signal.SIGCONT)


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Hostile]:
    (tmp_path / "log").touch()
    hostile = Hostile(tmp_path / "log")
    with hostile.control, hostile.process:
        yield hostile
        hostile.process.kill()


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    """A referee that is made to allocate without bound fails here instead of taking the machine with it."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


class Referee:
    """What a referee does with a worker, one order at a time. Raises Fault or Refused."""

    def __init__(self, instance: Instance, chance: random.Random) -> None:
        self.instance = instance
        self.workload = instance.describe()
        self.chance = chance
        self.inputs = [torch.randn(4, 4)]
        self.operations: tuple[Callable[[WorkerClient], None], ...] = (
            self.load, self.construct, self.set_state, self.call, self.call, self.look_again, self.state,
            self.block, self.block, self.profile, self.watched, self.explained,
        )  # fmt: skip

    def judge(self, client: WorkerClient) -> Iterator[Verdict]:
        """Orders, and what is found wrong with their answers, until one of them is a fault."""
        for _ in range(100):
            try:
                self.chance.choice(self.operations)(client)
            except Refused as refusal:
                yield refusal.verdict

    def load(self, client: WorkerClient) -> None:
        client.load("", "candidate.py", "ModelNew")

    def construct(self, client: WorkerClient) -> None:
        state = client.construct(self.instance, 1)
        assert all(isinstance(name, str) for name in state)
        assert all(isinstance(n, int) for ref in state.values() for n in ref.shape)

    def set_state(self, client: WorkerClient) -> None:
        client.set_state({"weight": self.inputs[0]})

    def call(self, client: WorkerClient) -> None:
        self.check(client.call(self.inputs, poison=64).value)

    def look_again(self, client: WorkerClient) -> None:
        earlier = torch.randn(4, 4)
        assert not same(earlier, client.previous_output())
        raise Refused(Mismatch(kind="numerical", reason="the output of an earlier call changed"))

    def state(self, client: WorkerClient) -> None:
        self.check(client.state(["weight"]).get("weight"))

    def block(self, client: WorkerClient) -> None:
        client.block.prepare([self.inputs] * 2)
        took = client.block.run()
        assert 0 < took.seconds < 60
        assert isinstance(took.claimed, float)
        for index in range(2):
            assert client.block.inputs_are_intact(index)
            self.check(client.block.output(index))

    def profile(self, client: WorkerClient) -> None:
        rows, timeline = client.profile(self.inputs, 1)
        total = sum(row[2] for row in rows) or 1.0
        spots = tuple(HotSpot(name=n, calls=c, seconds=s, share=s / total) for n, c, s in rows)
        floor = roofline(self.workload, PEAKS)
        spans = tuple(Span(name=n, start=begun * 1e-9, seconds=s) for n, begun, s in timeline)
        page = digest(tool="t", seconds=1.0, hot_spots=spots, roofline=floor, workload=self.workload)
        page = page.model_copy(update={"timeline": spans})
        assert type(page).from_json(page.to_json()) == page
        assert len(page.to_json()) < 100_000
        raise Refused(Mismatch(kind="structure", reason="a profile is a claim, and no verdict follows from it"))

    def explained(self, client: WorkerClient) -> None:
        code = client.explain(Counter({CodePosition("/k.so", 64): 3}))
        shown = authored_page.lines(code)
        assert len(shown) < 40
        assert all("\n" not in line and len(line) < 150 for line in shown)
        raise Refused(Mismatch(kind="structure", reason="an explanation is a claim, and no verdict follows from it"))

    def watched(self, client: WorkerClient) -> None:
        client.block.prepare([self.inputs] * 2)
        seen = Seen(*client.block.watch(), 2)
        trace = seen.census(lambda _: "authored")
        assert type(trace).from_json(trace.to_json()) == trace
        assert "\n" not in (seen.doubt([1e-3]) or "")
        assert "\n" not in seen.foremost(lambda _: "library")
        assert len(seen.foremost(lambda _: "library")) < 200
        self.check(client.block.output(0))

    def check(self, output: object) -> None:
        right = torch.randn(4, 4)  # nobody can know it
        assert not surely_alike(right, output, "strict")
        found = compare(Truth(right.double(), right), output, "strict", "a case")
        assert isinstance(found, Mismatch)
        raise Refused(found)


def verdicts(hostile: Hostile, referee: Referee) -> Iterator[Verdict]:
    """All that is found wrong in one life; the last of it ended that."""
    with hostile.life() as process:
        try:
            client = WorkerClient(
                process,
                wire.Begin("/", "/", "strict"),
                output_bytes=1024,
                call_deadline=CALL_DEADLINE,
                access=HostAccess(platforms.find("null").adapter) if referee.chance.random() < 0.7 else OutputAccess(),
            )
            yield from referee.judge(client)
        except Fault as fault:
            yield fault.verdict


def kind(verdict: Verdict) -> str:
    parts = (getattr(verdict, name, "") for name in ("state", "rule", "fault", "kind"))
    return " ".join(part for part in parts if part)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


KINDS = {
    "rejected channel", "rejected foreign_output", "runtime_error died", "runtime_error timed_out",
    "runtime_error raised", "compilation_failure", "mismatch numerical", "mismatch structure", "mismatch shape",
    "mismatch dtype",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are held and watched through Linux's /proc")
@pytest.mark.parametrize("lies", [1_000, pytest.param(10_000, marks=pytest.mark.volume)])
def test_lies_make_no_verdict_but_a_failing_one(
    hostile: Hostile, bounded_memory: None, tmp_path: Path, lies: int
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    referee = Referee(instantiate(problems.load(tmp_path / "problem.py")), random.Random(SEED))
    ends: Counter[str] = Counter()
    open_before = descriptors()
    while hostile.lies < lies or (hostile.lies < MOST_LIES and not set(ends) >= KINDS):
        found = list(verdicts(hostile, referee))
        assert found, "a hundred orders, and nothing was wrong"
        for verdict in found:
            assert verdict.state in {"rejected", "runtime_error", "compilation_failure", "mismatch"}
            assert "\n" not in verdict.reason
            assert len(verdict.reason) <= 600
            assert len(getattr(verdict, "log", "")) <= MAX_LOG
            assert type(verdict).from_json(verdict.to_json()) == verdict
        ends.update(map(kind, found))
    assert descriptors() <= open_before  # what earlier tests had left open may be closed meanwhile
    assert set(ends) >= KINDS, "the lies did not reach everything that can refuse them"
