"""Reads recommendations from a model's answer, in the forms that models really send. No text makes it raise."""

from __future__ import annotations

import re
from typing import NamedTuple

from kforge.agents.markdown import LONGEST, code_blocks, json_fault, json_values, plain, without_thinking
from kforge.records import Recommendation

FIELDS = ("bottleneck", "action", "rationale", "evidence", "expected_gain")
"""The parts of a recommendation that a model gives."""
NOTHING_LEFT = "nothing_left"
"""The key under which a model says why no further change is worth trying."""
MOST_IDEAS = 3
"""Most ideas in one answer. One is followed at once, and more than two others would seldom still be right later."""
_LABEL = re.compile(r"^[\s>*_#\-\d.]*(?P<name>[A-Za-z][A-Za-z _\-]{0,30}?)[*_`\s]*:[*_\s]*(?P<value>.*)$")


class Unreadable(str):
    """Why an answer is not a recommendation, in words that the model can act on."""

    __slots__ = ()


class NothingToTry(NamedTuple):
    """An answer which says that no further change is worth trying."""

    reason: str
    evidence: str


Ideas = tuple[Recommendation, ...]
"""One to three recommendations, the best first."""


def parse_recommendations(text: str, finish: str = "stop") -> Ideas | NothingToTry | Unreadable:
    """Return the ideas in an answer, or that it sees nothing left worth trying, or why it cannot be read.

    The answer may have one JSON object or a list of up to three, in a code block or bare, or lines of `key: value`.
    `finish`: why the answer ended, as the provider says.
    """
    answer = without_thinking(plain(text[:LONGEST]))
    read = _read(answer) if answer.strip() else Unreadable("the answer is empty, or holds nothing but thinking")
    if finish == "length" and isinstance(read, Unreadable):
        return Unreadable(
            "the answer was cut off at its length limit before the recommendation was complete; think less"
        )
    return read


def _read(answer: str) -> Ideas | NothingToTry | Unreadable:
    blocks = [block.text for block in code_blocks(answer, lambda _: False)]
    problem: Unreadable | None = None
    for part in [*blocks, answer]:
        for value in json_values(part):
            read = _ideas(value)
            if not isinstance(read, Unreadable):
                return read
            problem = problem or read
    read = _ideas(_labelled(answer))
    if not isinstance(read, Unreadable):
        return read
    if problem is None and (fault := json_fault(answer)) is not None:
        return Unreadable(f"its JSON is invalid: {fault}")
    return problem or read


def _ideas(value: object) -> Ideas | NothingToTry | Unreadable:
    if isinstance(value, dict) and len(value) == 1 and isinstance(inner := next(iter(value.values())), (dict, list)):
        value = inner
    if not isinstance(value, list):
        read = _idea(value)
        return (read,) if isinstance(read, Recommendation) else read
    if not 1 <= len(value) <= MOST_IDEAS:
        return Unreadable(f"it gives {len(value)} recommendations, and one to {MOST_IDEAS} are asked for")
    ideas = [_idea(each) for each in value]
    if not isinstance(ideas[0], Recommendation):
        return ideas[0]
    return tuple(each for each in ideas if isinstance(each, Recommendation))


def _idea(value: object) -> Recommendation | NothingToTry | Unreadable:
    if not isinstance(value, dict):
        return Unreadable("it holds no JSON object")
    given = {_field(str(key)): _words(item) for key, item in value.items()}
    if (reason := given.get(NOTHING_LEFT)) and not given.get("action"):
        if not given.get("evidence"):
            return Unreadable("it says that nothing is left worth trying, and lacks evidence")
        return NothingToTry(reason, given["evidence"])
    missing = [field for field in FIELDS if not given.get(field)]
    if missing:
        return Unreadable(f"it lacks {', '.join(missing)}")
    return Recommendation(**{field: given[field] for field in FIELDS})


def _field(key: str) -> str:
    return re.sub(r"[\s_\-]+", "_", key.strip().lower())


def _words(value: object) -> str:
    if isinstance(value, list):
        return "; ".join(_words(item) for item in value)
    return "" if value is None or isinstance(value, dict) else " ".join(str(value).split())


def _labelled(answer: str) -> dict[str, str]:
    """Return lines of `key: value`; a line without a known key continues the value before it."""
    given: dict[str, str] = {}
    current = ""
    for line in answer.split("\n"):
        label = _LABEL.match(line)
        if label is not None and _field(label["name"]) in (*FIELDS, NOTHING_LEFT):
            current = _field(label["name"])
            given[current] = label["value"].strip()
        elif current and line.strip() and not line.lstrip().startswith(("```", "~~~")):
            given[current] += " " + line.strip()
    return given
