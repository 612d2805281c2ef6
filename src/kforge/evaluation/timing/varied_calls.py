"""Puts other inputs than given into some calls of extra blocks between timed ones: other integers, masks and Python
numbers, special numbers, and rows that are positive or rise. (torch)

Timed calls have the problem's own masks, lengths and numbers, because with others a call may take longer or shorter. So
a program that counts its calls could ignore a mask as soon as it is timed. The calls of an extra block look like timed
ones to the program, but their time does not count. A few of them have new inputs, which are varied in the same ways as
the inputs on which the program was verified. The outputs of these calls are always checked.
"""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING, Any

from kforge.evaluation import constants

if TYPE_CHECKING:
    from kforge.evaluation.correctness.case import Case
    from kforge.evaluation.correctness.check import CorrectnessCheck


class VariedCalls:
    """Varies the inputs of calls of one program. The variations are used one after the other, in a random order that
    changes each time all have been used."""

    def __init__(self, correctness: CorrectnessCheck) -> None:
        self._correctness = correctness
        self._chance = secrets.SystemRandom()
        self._numbers = itertools.count()
        self._next: list[Case] = []
        """The verified cases whose variations are not used yet in this turn."""
        self._turns = 0
        """Number of turns that were begun. A turn uses each variation once."""
        self._cases: dict[int, Case] = {}
        """The cases of the varied calls, by the number of the call within the present block."""

    @property
    def applies(self) -> bool:
        """Whether calls can be varied. If results depend on earlier calls, they are not: a call whose varied inputs
        are refused afterwards would already have changed the baseline's state."""
        return bool(self._correctness.source.taken) and not self._correctness.reference.has_history

    @property
    def are_left(self) -> bool:
        """Whether some variation has not been used yet."""
        return self.applies and (not self._turns or (self._turns == 1 and bool(self._next)))

    @property
    def places(self) -> list[int]:
        """The numbers of the varied calls, counted within the present block."""
        return list(self._cases)

    def put_into(self, sets: list[list[Any]]) -> bool:
        """Begin a block: replace the inputs of a few random calls in `sets`. Returns whether any could be replaced."""
        self._cases = {}
        if not self.applies:
            return False
        most = min(constants.VARIED_CALLS, max(1, len(sets) // 2))
        for place in self._chance.sample(range(len(sets)), most):
            case = self._correctness.source.varied_again(self._following(), next(self._numbers))
            if case is not None and self._correctness.usable.takes(case):
                sets[place] = case.inputs
                self._cases[place] = case
        return bool(self._cases)

    def is_excused(self, place: int) -> bool:
        """Return whether a wrong output of this call does not count. It does not if these inputs cannot judge a
        program, by the same rule as for the calls that verify a program."""
        case = self._cases.get(place)
        return case is not None and self._correctness.usable.truth(case) is None

    def forget(self) -> None:
        """End the present block: none of its calls counts as varied any more."""
        self._cases = {}

    def _following(self) -> Case:
        """Return the case whose variation is used next."""
        if not self._next:
            self._turns += 1
            self._next = list(self._correctness.source.taken.values())
            self._chance.shuffle(self._next)
        return self._next.pop()
