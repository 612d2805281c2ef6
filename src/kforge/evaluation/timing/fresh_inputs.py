"""Draws the inputs of timed blocks, in advance where that is worth it. (torch)"""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kforge.evaluation import constants
from kforge.evaluation.transport.shared_memory import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Draw = Callable[[int], list[list[Any]]]
    """Draws the inputs of this many calls."""


class FreshInputs:
    """Inputs that no call has seen before. A context manager: its thread ends with it."""

    def __init__(self, draw: Callable[[int, int], list[list[Any]]], *, ahead: bool) -> None:
        """`draw` makes the inputs of a block from its number and its number of calls. `ahead`: inputs may be drawn in
        advance."""
        self._draw = draw
        self._draws_ahead = ahead
        self._numbers = itertools.count(1)
        """Numbers of the blocks whose inputs are drawn, in two threads."""
        self._ahead: Future[list[list[Any]]] | None = None
        """The inputs of the next block, drawn while the outputs of the one before are checked."""
        self._thread = ThreadPoolExecutor(1)
        """The thread that draws them."""

    def __enter__(self) -> None:
        self._thread.__enter__()

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def take(self, calls: int, draw: Draw | None = None) -> list[list[Any]]:
        """Return the inputs that were drawn in advance, or draw those of this many calls now."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead.result()
        return (draw or self.together)(calls)

    def begin_next(self, draw: Draw, calls: int) -> None:
        """Draw the next inputs in advance, where that is allowed."""
        if self._draws_ahead:
            self._ahead = self._thread.submit(draw, calls)

    def together(self, calls: int) -> list[list[Any]]:
        """Draw the inputs of a block from one seed."""
        return self._draw(next(self._numbers), calls)

    def apart(self, calls: int) -> list[list[Any]]:
        """Draw each call's inputs from a separate seed: the inputs of one call must not reveal those of the next."""
        return [self.together(1)[0] for _ in range(calls)]


def sets_in_memory(inputs: list[Any], output_bytes: int, room: int = constants.MAX_INPUT_BYTES) -> int:
    """Return how many sets of inputs like these fit into memory at a time, with the outputs of a call on each.

    The room is given for outputs as large as the inputs. Larger ones are counted by their share of what a call holds.
    """
    of_inputs = bytes_of(inputs)
    held = constants.HELD_INPUTS * of_inputs + constants.HELD_OUTPUTS * output_bytes
    return max(1, room // max(1, of_inputs, held // (constants.HELD_INPUTS + constants.HELD_OUTPUTS)))
