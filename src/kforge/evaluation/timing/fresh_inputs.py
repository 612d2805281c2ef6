"""Draws the inputs of timed blocks, in advance if that saves time. (torch)"""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kforge.evaluation import constants
from kforge.evaluation.transport.shared_memory import bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Draw = Callable[[int], list[list[Any]]]
    """A function that draws the inputs of the given number of calls."""


class FreshInputs:
    """Draws inputs that no call has had before. Use it as a context manager, which ends its thread."""

    def __init__(self, draw: Callable[[int, int], list[list[Any]]], *, ahead: bool) -> None:
        """`draw(number, calls)` returns the inputs of a block's calls. With `ahead`, inputs may be drawn in advance."""
        self._draw = draw
        self._draws_ahead = ahead
        self._numbers = itertools.count(1)
        """Numbers of blocks, each used once. Both threads take numbers from here."""
        self._ahead: Future[list[list[Any]]] | None = None
        """The inputs of the next block, which are drawn while the outputs of the last block are checked."""
        self._thread = ThreadPoolExecutor(1)
        """The thread that draws the inputs of the next block in advance."""

    def __enter__(self) -> None:
        self._thread.__enter__()

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def take(self, calls: int, draw: Draw | None = None) -> list[list[Any]]:
        """Return the inputs that were drawn in advance; if there are none, draw those of this many calls."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead.result()
        return (draw or self.together)(calls)

    def begin_next(self, draw: Draw, calls: int) -> None:
        """Start to draw the next inputs in the other thread, if that is allowed."""
        if self._draws_ahead:
            self._ahead = self._thread.submit(draw, calls)

    def together(self, calls: int) -> list[list[Any]]:
        """Draw the inputs of all calls of a block from one seed."""
        return self._draw(next(self._numbers), calls)

    def apart(self, calls: int) -> list[list[Any]]:
        """Draw each call's inputs from its own seed, so that the inputs of one call do not reveal those of the next."""
        return [self.together(1)[0] for _ in range(calls)]


def sets_in_memory(inputs: list[Any], output_bytes: int, room: int = constants.MAX_INPUT_BYTES) -> int:
    """Return how many sets of inputs like these fit into memory at a time, with the outputs of a call on each.

    `room` is the allowed bytes of inputs, for outputs that are no larger than the inputs. Larger outputs reduce the
    number.
    """
    of_inputs = bytes_of(inputs)
    held = constants.HELD_INPUTS * of_inputs + constants.HELD_OUTPUTS * output_bytes
    return max(1, room // max(1, of_inputs, held // (constants.HELD_INPUTS + constants.HELD_OUTPUTS)))
