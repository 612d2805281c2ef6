"""Remembers across runs which programs were proven faster on this device, as examples for later problems.

Only programs that stayed correct in all evaluations and were proven faster than eager are kept, and only those of runs
that this user made on this machine. Their texts come from models, so a prompt must show them as data: one line each,
and the source in a code block that the source cannot end.
"""

from __future__ import annotations

import ast
import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AfterValidator, ValidationError

from kforge.records import Count, Interval, Record, times
from kforge.store.memory_files import MemoryFiles
from kforge.syntax import Unparsable, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kforge.records import Attempt, Evaluation, EvaluationPolicy, Problem, TensorSpec, Workload

MOST_EXAMPLES = 3
"""Most programs that are recalled for a problem. Each takes about a thousand tokens of the prompt."""
LEAST_LIKENESS = 0.2
"""Least share of operators that two problems must have in common."""
LONGEST_LINE = 240
"""Most characters of an idea or a name."""
LONGEST_SOURCE = 20_000
"""Most characters of a program that is kept; a prompt shows less."""
COMMON = frozenset({"module", "parameter", "super", "view", "reshape", "size", "contiguous", "float", "tensor", "to"})
"""Names in nearly every problem, which say nothing about it."""


def _one_line(text: str) -> str:
    return " ".join(text.replace("`", "'").split())[:LONGEST_LINE]


Line = Annotated[str, AfterValidator(_one_line)]
"""Text of one line, without backticks."""


class Remembered(Record):
    """A program that was proven faster, with its problem, the idea behind it and its speedup."""

    problem: Line
    problem_digest: str
    names: tuple[Line, ...]
    """The operators in the problem's source."""
    shapes: Line
    elements: Count
    """Number of elements of all inputs together."""
    idea: Line
    """The recommendation that led to the program."""
    speedup: Interval
    """Speedup over eager, from the repeated evaluations."""
    source: str

    @property
    def operators(self) -> str:
        return ", ".join(self.names)

    @property
    def gain(self) -> str:
        return f"{times(self.speedup)} over eager"

    @classmethod
    def of(cls, problem: Problem, workload: Workload, lineage: Sequence[Attempt], reported: Evaluation) -> Self | None:
        """Return the record of a run's best program; None if it is not proven faster, or is longer than LONGEST_SOURCE.

        `lineage`: the chain of attempts that led to the best one, which is the last. `reported`: the evaluation of the
        best attempt, with the timing of its repetitions.
        """
        candidate, correct = lineage[-1].candidate, reported.correct
        if candidate is None or correct is None or len(candidate.source) > LONGEST_SOURCE:
            return None
        if not correct.comparisons or correct.comparisons[0].finding != "faster":
            return None
        ideas = [each.recommendation.action for each in lineage if each.recommendation is not None]
        return cls(
            problem=problem.name,
            problem_digest=problem.digest,
            names=operators(problem.source),
            shapes=f"{_shapes(workload.inputs)} to {_shapes(workload.outputs)}",
            elements=_elements(workload.inputs),
            idea="; then ".join(ideas[-2:]) or "the first program",
            speedup=correct.comparisons[0].speedup,
            source=candidate.source,
        )


class ProgramMemory:
    """The remembered programs of one device, platform, precision and track."""

    def __init__(self, cache: Path, device: str, platform: str, policy: EvaluationPolicy) -> None:
        self._files = MemoryFiles(cache / "programs")
        self._place = [device, platform, policy.precision, policy.track]

    def keep(self, found: Remembered) -> None:
        """Store a program, unless an equally fast or faster one for the same problem is stored."""
        key = [*self._place, found.problem_digest]
        known = _valid(self._files.get(key).get("program"))
        if known is None or known.speedup.median < found.speedup.median:
            self._files.put(key, {"place": self._place, "program": found.model_dump(mode="json")})

    def recall(self, problem: Problem, workload: Workload, without: str = "") -> tuple[Remembered, ...]:
        """Return programs for the other problems that are most like this one, at most MOST_EXAMPLES.

        `without`: names of problems whose programs are left out, with wildcards and separated by commas.
        """
        names, elements = set(operators(problem.source)), _elements(workload.inputs)
        rated = []
        for known in self._all():
            if known.problem_digest == problem.digest or is_named(known.problem, without):
                continue
            likeness = len(names & set(known.names)) / max(1, len(names | set(known.names)))
            if likeness >= LEAST_LIKENESS:
                apart = abs(math.log((elements + 1) / (known.elements + 1)))
                rated.append((-round(likeness, 3), apart, known.problem_digest, known))
        return tuple(known for *_, known in sorted(rated, key=lambda each: each[:3])[:MOST_EXAMPLES])

    def _all(self) -> Iterator[Remembered]:
        for document in self._files.all():
            known = _valid(document.get("program")) if document.get("place") == self._place else None
            if known is not None:
                yield known


def is_named(problem: str, patterns: str) -> bool:
    """Return whether a problem's name matches one of the patterns, which commas separate."""
    return any(fnmatchcase(problem, pattern.strip()) for pattern in patterns.split(","))


def operators(source: str) -> tuple[str, ...]:
    """Return the names of operators and layers that a problem's `Model` uses; none if the source cannot be parsed."""
    try:
        tree = parsed(source)
    except Unparsable:
        return ()
    found = set()
    for model in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
        for node in ast.walk(model):
            if isinstance(node, ast.Call):
                found.add(_called(node.func))
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                found.add("matmul")
    return tuple(sorted(name for name in found - COMMON if name and not name.startswith("_")))


def _called(function: ast.expr) -> str:
    """Return the last name in the called expression, in lower case: `relu` for `F.relu`. Empty for `self.norm`."""
    if isinstance(function, ast.Name):
        return function.id.lower()
    if not isinstance(function, ast.Attribute):
        return ""
    owner = function.value
    is_own = isinstance(owner, ast.Name) and owner.id == "self"
    return "" if is_own else function.attr.lower()


def _shapes(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{each.dtype}[{', '.join(map(str, each.shape))}]" for each in specs)


def _elements(specs: Sequence[TensorSpec]) -> int:
    return sum(math.prod(each.shape) for each in specs)


def _valid(document: object) -> Remembered | None:
    try:
        return Remembered.model_validate(document)
    except ValidationError:
        return None
