"""Times two correct programs against each other, in fresh processes, until it is known which one is faster. (torch)

Both programs get the guards that a candidate has against eager: outputs of timed calls are checked in both roles,
inputs are new, and neither works outside its timed calls. The session says nothing about a speedup over eager. It only
decides which of the two programs is faster.
"""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.errors import ProblemError
from kforge.evaluation import constants
from kforge.evaluation.constants import CONTENDED_PATIENCE, MOST_ROUNDS
from kforge.evaluation.correctness.check import CorrectnessCheck
from kforge.evaluation.stages import WORDS
from kforge.evaluation.static_check import ENTRY
from kforge.evaluation.timing.block_check import CASE, BlockCheck
from kforge.evaluation.timing.legs import Leg, Legs
from kforge.evaluation.timing.race import Duration, Race
from kforge.evaluation.timing.timed_outputs import TimedOutputs
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.records import HeadToHead, times

if TYPE_CHECKING:
    from kforge.evaluation.referee.workers import WorkerFactory
    from kforge.evaluation.timing.pairs import PairedSamples
    from kforge.problems.instance import Instance
    from kforge.records import Candidate


@dataclass(frozen=True)
class Side:
    """One program, loaded in a worker, with the check of its outputs."""

    client: WorkerClient
    check: CorrectnessCheck

    @property
    def takes_weights(self) -> bool:
        """Whether the program keeps its weights under the reference's names and shapes, so that weights of the
        reference can be copied into it."""
        return not self.check.handover.repacked


class RivalCheck(BlockCheck):
    """A `BlockCheck` whose baseline is a second program, not the reference. The baseline's outputs may be wrong, and it
    may keep its weights in another form."""

    trusts_baseline = False

    def __init__(self, candidate: Side, rival: Side) -> None:
        super().__init__(candidate.check, rival.client, candidate.client)
        self._takes_weights = candidate.takes_weights and rival.takes_weights
        # a rival that takes weights has those of the candidate's reference
        self._outputs_of_rival = TimedOutputs(candidate.check if rival.takes_weights else rival.check)

    def renew_weights(self) -> None:
        if self._takes_weights:
            super().renew_weights()

    def _compare(self, sets: list[list[Any]]) -> None:
        """Compare the candidate's outputs, then those of the rival, which must not skip work while it is the
        baseline."""
        super()._compare(sets)
        if self._outputs_of_rival.in_sequence:  # both made the same calls, and their outputs were compared
            return
        for index in self._chance.sample(range(len(sets)), min(len(sets), constants.COMPARED_CALLS)):
            ours, theirs = self._candidate.block.output(index), self._baseline.block.output(index)
            if self._difference(ours, theirs)[0] > self._accepted:
                self._outputs_of_rival.must_be_right(sets[index], theirs, CASE)
                return  # one check is enough: a call of the reference takes long


class HeadToHeadRun:
    """Times two programs against each other, in several pairs of fresh processes, until the finding is settled."""

    def __init__(self, workers: WorkerFactory, instance: Instance, challenger: Candidate, rival: Candidate) -> None:
        self._workers = workers
        self._instance = instance
        self._programs = challenger, rival
        self._legs = Legs()
        self._begin = time.monotonic()

    def run(self) -> HeadToHead:
        """Return the finding. If a program fails while it is timed, the finding is undecided and names the failure."""
        while self._legs.rounds < MOST_ROUNDS:
            try:
                self._time_round()
            except (Fault, ProblemError) as error:
                reason = f"a program failed while the two were timed: {error}"
                return HeadToHead(finding="undecided", spent=self._spent, reason=reason)
            found = self._legs.standing(self._variation, spent=self._spent)
            longest = self._workers.setup.timing_cap * (CONTENDED_PATIENCE if found.reason else 1.0)
            if self._legs.is_settled(self._variation) or self._spent > longest:
                return found
            if found.speedup is not None:
                why = f", {found.reason}" if found.reason else ""
                progress = f"{self._spent:.0f} s of at most {longest:.0f} s, {times(found.speedup)} so far{why}"
                self._workers.say(f"{WORDS['head to head']}: {progress}")
        return self._legs.standing(self._variation, spent=self._spent)

    @property
    def _spent(self) -> float:
        return round(time.monotonic() - self._begin, 3)

    @property
    def _variation(self) -> float:
        """Log-ratio bound on process-to-process variation."""
        seconds = self._legs.legs[0].samples.candidate_seconds().median if self._legs.legs else 1.0
        return self._workers.adapter.process_variation(seconds)

    def _time_round(self) -> None:
        """Time both programs in fresh processes, each in both roles."""
        self._workers.say(WORDS["head to head"])
        challenger, rival = self._programs
        with (
            closing(self._workers.worker(challenger.digest)) as first,
            closing(self._workers.worker(rival.digest)) as second,
        ):
            sides = self._ready(first, challenger), self._ready(second, rival)
            order = [True, False]
            secrets.SystemRandom().shuffle(order)
            for leads in order:
                candidate, baseline = sides if leads else sides[::-1]
                self._legs.legs.append(Leg(self._race(candidate, baseline), challenger_leads=leads))
        self._legs.rounds += 1

    def _ready(self, client: WorkerClient, program: Candidate) -> Side:
        """Load a program and judge it on one case, so that what is timed is right."""
        client.load(program.source, "candidate.py", ENTRY)
        check = CorrectnessCheck(
            self._instance,
            client,
            secret=secrets.token_hex(16),
            precision=self._workers.setup.precision,
            cut=self._workers.memory_plan.cut,
        )
        check.sample((), 0.0)
        check.source.odd_rows = None  # the reference may fail on some odd rows
        return Side(client, check)

    def _race(self, candidate: Side, baseline: Side) -> PairedSamples:
        # with the same weights, the baseline's outputs show whether the candidate's can be right; the candidate may
        # still have the weights of the race before
        for side in (candidate, baseline):
            if side.takes_weights:
                side.client.set_state(candidate.check.reference.state())
        # each pair of processes is timed twice as long as the one before, so that starting them takes a smaller share
        seconds = self._workers.setup.timing_seconds / 2 * 2**self._legs.rounds
        return Race(
            baseline.client,
            candidate.client,
            draw=candidate.check.source.timed,
            output_bytes=self._workers.output_bytes,
            check=RivalCheck(candidate, baseline),
            limits=self._workers.adapter.limits,
            duration=Duration(seconds=seconds, longest=seconds),
        ).run()
