"""Reads a recommendation from what a model really sends. No text makes it raise."""

from __future__ import annotations

import re

from kforge.agents.markdown import LONGEST, code_blocks, json_fault, json_values, plain, without_thinking
from kforge.records import Recommendation

FIELDS = ("bottleneck", "action", "rationale", "evidence", "expected_gain")
"""The parts of a recommendation that a model gives."""
_LABEL = re.compile(r"^[\s>*_#\-\d.]*(?P<name>[A-Za-z][A-Za-z _\-]{0,30}?)[*_`\s]*:[*_\s]*(?P<value>.*)$")


class Unreadable(str):
    """Why an answer is not a recommendation, in words that the model can act on."""

    __slots__ = ()


def parse_recommendation(text: str, finish: str = "stop") -> Recommendation | Unreadable:
    """Return the one recommendation in an answer: a JSON object in a block or bare, or lines of `key: value`.

    `finish`: why the answer ended, as the provider says.
    """
    answer = without_thinking(plain(text[:LONGEST]))
    read = _read(answer) if answer.strip() else Unreadable("the answer is empty, or holds nothing but thinking")
    if finish == "length" and isinstance(read, Unreadable):
        return Unreadable(
            "the answer was cut off at its length limit before the recommendation was complete; think less"
        )
    return read


def _read(answer: str) -> Recommendation | Unreadable:
    blocks = [block.text for block in code_blocks(answer, lambda _: False)]
    problem: Unreadable | None = None
    for part in [*blocks, answer]:
        for value in json_values(part):
            read = _recommendation(value)
            if isinstance(read, Recommendation):
                return read
            problem = problem or read
    read = _recommendation(_labelled(answer))
    if isinstance(read, Recommendation):
        return read
    if problem is None and (fault := json_fault(answer)) is not None:
        return Unreadable(f"its JSON is invalid: {fault}")
    return problem or read


def _recommendation(value: object) -> Recommendation | Unreadable:
    if isinstance(value, dict) and len(value) == 1 and isinstance(inner := next(iter(value.values())), (dict, list)):
        value = inner
    if isinstance(value, list):
        if len(value) != 1:
            return Unreadable(f"it gives {len(value)} recommendations, and exactly one is asked for")
        value = value[0]
    if not isinstance(value, dict):
        return Unreadable("it holds no JSON object")
    given = {_field(str(key)): _words(item) for key, item in value.items()}
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
        if label is not None and _field(label["name"]) in FIELDS:
            current = _field(label["name"])
            given[current] = label["value"].strip()
        elif current and line.strip() and not line.lstrip().startswith(("```", "~~~")):
            given[current] += " " + line.strip()
    return given
