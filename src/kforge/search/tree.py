"""Tree search: every attempt is a node, and the node with the highest expected gain is continued next.

A node's expected gain is what one more rewrite of it is expected to win over the best program. A rewrite improves its
parent with probability p, by a factor whose logarithm is exponentially distributed with mean s. A program that is
slower than the best by the factor exp(d) then wins p * s * exp(-d / s) on average. So a losing branch stays available:
when rewrites of the best have failed often enough, a program that is somewhat slower is continued instead. Nodes are
ranked by the gain for each model call. So a repair, or advice that was given but not followed yet, comes before new
advice, which costs one more call.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kforge.search import history
from kforge.search.linear import improve
from kforge.search.moves import Move, Repair, Write

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from kforge.records import Attempt

USUAL_GAIN = math.log(1.3)
"""Mean logarithm of the factor that a successful rewrite gains, as long as the run has no data of its own. A rewrite
that helps often gains some ten percent, and now and then a factor of two."""
USUAL_CHANCE = 0.5
"""Chance that a rewrite improves its parent, as long as the run has no data of its own. It weighs as much as two
rewrites."""
FAITH = 6
"""Weight of the run's average chance in the chance of one program, as a number of rewrites. So one bad rewrite does not
make the tree leave a program, and several do."""
LEAST_GAIN = math.log(1.02)
"""Logarithm of the least factor that counts as an improvement (2 %). A head-to-head shows no smaller difference."""
REPAIR_SHARE = 0.5
"""Factor by which each failed repair lowers the expected gain of a failed rewrite."""
FRESH_SHARE = 0.25
"""Expected worth of another first program, where nothing is correct yet, relative to the first repair of one. So a
first program gets two repairs before another one is written."""


class TreeSearch:
    """The tree strategy: always continues the node with the highest expected gain."""

    def next_moves(self, attempts: Sequence[Attempt], exhausted: Set[int] = frozenset()) -> tuple[Move, ...]:
        """Return the move with the highest expected gain. Of equal ones, repairs come first, then later attempts."""
        if not attempts:
            return (Write(),)
        if history.start(attempts) is None:
            return (_best(_first_programs(attempts)),)
        nodes = [
            node
            for node in _Growth(attempts).nodes()
            if node.at not in exhausted  # a failed program is never exhausted: no advice was asked for it
        ]
        return (_best(nodes),) if nodes else ()

    def begin_of_round(self, index: int) -> int:
        return index


class _Node(NamedTuple):
    """A move that the tree could make, with its expected gain for each model call: new advice costs one more call."""

    move: Move
    gain: float
    at: int
    """Index of the attempt that would be continued; -1 for a first program."""


def _best(nodes: Sequence[_Node]) -> Move:
    return max(nodes, key=lambda node: (round(node.gain, 9), isinstance(node.move, Repair), node.at)).move


def _first_programs(attempts: Sequence[Attempt]) -> list[_Node]:
    """Return the moves where nothing is correct yet: repair a program that failed, or write another one."""
    written = sum(each.parent is None for each in attempts)
    nodes = [_Node(Write(), FRESH_SHARE * REPAIR_SHARE ** (written - 1), -1)]
    return nodes + [_repair(attempts, leaf, 1.0) for leaf in history.leaves(attempts)]


def _repair(attempts: Sequence[Attempt], leaf: Attempt, gain: float) -> _Node:
    kept = gain * REPAIR_SHARE ** history.repairs(attempts, leaf)
    return _Node(Repair(leaf, history.repeats(attempts, leaf)), kept, leaf.index)


class _Growth:
    """Expected gains of the programs of a run."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self._attempts = attempts
        self._programs = history.ranked(attempts)
        self._ratings = history.ratings(attempts)
        plateaus = self._plateaus()
        self._gains: dict[int, list[float]] = {plateau: [] for plateau in plateaus.values()}
        for program in self._programs:
            self._gains[plateaus[program.index]] += self._gained(program)
        self._plateau = plateaus
        gains = [gain for each in self._gains.values() for gain in each]
        good = [gain for gain in gains if gain > LEAST_GAIN]
        self._usual = (USUAL_GAIN + sum(good)) / (1 + len(good))
        self._usual_chance = (2 * USUAL_CHANCE + len(good)) / (2 + len(gains))

    def nodes(self) -> list[_Node]:
        """Return the moves: improve a correct program, or repair a rewrite that failed."""
        nodes = []
        for program in self._programs:
            move = improve(self._attempts, program)
            calls = 2 if move.idea is None else 1
            nodes.append(_Node(move, self._gain(program, self._chance(program)) / calls, program.index))
            # the gain of a failed rewrite is unknown, so its chance is the run's average and not that of its program
            open_gain = self._gain(program, self._usual_chance)
            nodes += [_repair(self._attempts, last, open_gain) for last in self._ends(program) if not last.is_correct]
        return nodes

    def _gain(self, program: Attempt, chance: float) -> float:
        """Return the expected gain of a rewrite that improves a program with this chance."""
        behind = max(0.0, self._ratings[self._programs[0].index] - self._ratings[program.index])
        return chance * self._usual * math.exp(-behind / self._usual)

    def _chance(self, program: Attempt) -> float:
        """Return the chance that one more rewrite improves a program, by all rewrites of its plateau."""
        gains = self._gains[self._plateau[program.index]]
        return (FAITH * self._usual_chance + sum(gain > LEAST_GAIN for gain in gains)) / (FAITH + len(gains))

    def _plateaus(self) -> dict[int, int]:
        """Return for each program the first program of its plateau. A rewrite that is as fast as its parent is on the
        parent's plateau: a rewrite that failed for one of them counts as failed for all."""
        found: dict[int, int] = {}
        for program in sorted(self._programs, key=lambda each: each.index):
            above = self._parent(program)
            level = above in found and abs(self._ratings[program.index] - self._ratings[above]) <= LEAST_GAIN
            found[program.index] = found[above] if level else program.index
        return found

    def _parent(self, program: Attempt) -> int:
        """Return the program that a program is a rewrite of, over all repairs; -1 for a first program."""
        parent = history.chain(self._attempts, program)[0].parent
        return -1 if parent is None else parent

    def _gained(self, program: Attempt) -> list[float]:
        """Return the logarithm of what each rewrite of a program gained over it; 0 for those that failed."""
        own = self._ratings[program.index]
        return [self._ratings[each.index] - own if each.is_kernel else 0.0 for each in self._ends(program)]

    def _ends(self, program: Attempt) -> list[Attempt]:
        """Return the last repair of each rewrite of a program, or the rewrite itself."""
        return [history.last_of_chain(self._attempts, each) for each in history.rewrites(self._attempts, program)]
