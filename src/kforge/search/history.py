"""Reads facts from the attempts of a run: repairs, tried recommendations, and the relative speed of programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kforge.records import best_attempt
from kforge.roles import Tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Attempt, Recommendation

REPAIRS_OF_A_REWRITE = 2
"""Number of repairs that a broken rewrite gets, once some attempt is correct, before the loop returns to a correct
program. Models that fail three times in a row with one program seldom succeed the fourth time."""

MOST_UNTRIED = 3
"""Most ideas for other programs that the analysis agent is told. Older ideas seldom fit the present program."""

PROGRESS = ("generation_failure", "rejected", "compilation_failure", "runtime_error", "mismatch")
"""States of failed programs, ordered by how far the program came."""


def start(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the program to improve: the best one; if no kernel is correct, the original module, unchanged; or None."""
    return best_attempt(attempts) or next((each for each in attempts if each.is_correct), None)


def repairs(attempts: Sequence[Attempt], leaf: Attempt) -> int:
    """Return how many repairs led from a rewrite, or from a first program, to this attempt."""
    return len(chain(attempts, leaf)) - 1


def chain(attempts: Sequence[Attempt], leaf: Attempt) -> list[Attempt]:
    """Return a rewrite, or a first program, and its repairs up to this attempt."""
    found = [leaf]
    while found[0].recommendation is None and found[0].parent is not None:
        found.insert(0, attempts[found[0].parent])
    return found


def root(attempts: Sequence[Attempt], leaf: Attempt) -> Attempt:
    """Return the first program from which an attempt descends, over all its rewrites and repairs."""
    while leaf.parent is not None:
        leaf = attempts[leaf.parent]
    return leaf


def repeats(attempts: Sequence[Attempt], last: Attempt) -> int:
    """Return how often the same program had the same state before this attempt."""
    return sum(
        attempt.candidate == last.candidate and attempt.verdict.state == last.verdict.state
        for attempt in attempts[: last.index]
    )


def leaves(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the failed attempts without a repair."""
    continued = {attempt.parent for attempt in attempts}
    return [attempt for attempt in attempts if not attempt.is_correct and attempt.index not in continued]


def furthest(attempts: Sequence[Attempt]) -> Attempt:
    """Return the failed attempt that came furthest; the first of those that came equally far."""
    return max(attempts, key=lambda each: PROGRESS.index(each.verdict.state))


def rewrites(attempts: Sequence[Attempt], parent: Attempt) -> list[Attempt]:
    """Return the attempts that followed a recommendation for this program."""
    return [each for each in attempts if each.parent == parent.index and each.recommendation is not None]


def last_of_chain(attempts: Sequence[Attempt], attempt: Attempt) -> Attempt:
    """Return the attempt itself, or the last of its repairs."""
    for later in attempts[attempt.index + 1 :]:
        if later.parent == attempt.index and later.recommendation is None:
            attempt = later
    return attempt


def tried(attempts: Sequence[Attempt], parent: Attempt) -> tuple[Tried, ...]:
    """Return what was recommended for a program, and the results."""
    found = []
    for attempt in rewrites(attempts, parent):
        assert attempt.recommendation is not None
        outcome, given_up = _outcome(last_of_chain(attempts, attempt), parent)
        found.append(Tried(recommendation=attempt.recommendation, outcome=outcome, given_up=given_up))
    return tuple(found)


def _outcome(attempt: Attempt, parent: Attempt) -> tuple[str, bool]:
    """Return the result of a rewrite in words, and whether its idea is given up."""
    if attempt.unchanged is not None and attempt.is_correct:
        return "the rewrite was the original module, unchanged", False
    if not attempt.is_correct:
        return f"the rewrite failed ({attempt.verdict.state.replace('_', ' ')})", False
    found = attempt.head_to_head
    if found is None:
        return "the rewrite was correct; whether it is faster is not known", False
    if attempt.rival != parent.index:
        return f"the rewrite was correct; timed against another program, the best one then: {found.in_words}", False
    if found.finding == "undecided":
        return f"the rewrite was correct; whether it is faster is {found.in_words}", False
    return f"the rewrite was correct and {found.in_words}", found.finding == "slower"


def waiting(attempts: Sequence[Attempt], parent: Attempt) -> tuple[Recommendation, ...]:
    """Return the ideas for a program that the analysis agent gave and no attempt has followed, in its order."""
    grown = rewrites(attempts, parent)
    followed = [each.recommendation for each in grown]
    given = dict.fromkeys(idea for each in grown for idea in each.others)
    return tuple(idea for idea in given if idea not in followed)


def untried(attempts: Sequence[Attempt], parent: Attempt) -> tuple[Recommendation, ...]:
    """Return the ideas for other programs that no attempt has followed, the latest first: at most MOST_UNTRIED."""
    followed = [each.recommendation for each in attempts]
    given = dict.fromkeys(idea for each in reversed(attempts) if each.parent != parent.index for idea in each.others)
    return tuple(idea for idea in given if idea not in followed)[:MOST_UNTRIED]


def ratings(attempts: Sequence[Attempt]) -> dict[int, float]:
    """Return the estimated speed of each correct program by its index: the logarithm of its ratio to the first one.

    Each program was timed against the best one of its time, so a chain of direct comparisons leads from every program
    to the first. This orders the programs that are not the best; which one is the best, `best_attempt` says.
    """
    found: dict[int, float] = {}
    for attempt in attempts:
        if not attempt.is_correct:
            continue
        compared = attempt.head_to_head
        ratio = compared.speedup.median if compared is not None and compared.speedup is not None else 1.0
        found[attempt.index] = found.get(attempt.rival if attempt.rival is not None else -1, 0.0) + math.log(ratio)
    return found


def ranked(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the correct programs, each once: the best first, the others by their rating."""
    best, rated = start(attempts), ratings(attempts)
    if best is None:
        return []
    kernels = [each for each in attempts if each.is_kernel and each is not best]
    found = [best]
    for each in sorted(kernels, key=lambda each: (-rated[each.index], each.index)):
        if each.candidate not in [known.candidate for known in found]:
            found.append(each)
    return found
